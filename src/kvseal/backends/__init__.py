# SPDX-License-Identifier: Apache-2.0
"""What can lie behind LMCache's memory: one L2 adapter of LMCache a file.

A backend (kvseal.backends.backend) says what its adapter needs, where LMCache
makes the text of a key for it, what lasts, and starts whatever server it talks
to, on loopback. kvseal.backends.registry lists all. Nothing here stores or
reads KV itself: LMCache's own adapter does. Called by the matrix driver, the
contract suite and bench/backends.py.
"""
