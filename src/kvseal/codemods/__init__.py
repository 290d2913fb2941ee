# SPDX-License-Identifier: Apache-2.0
"""Edits to installed upstream packages: exact, recorded, reversible.

A codemod is a pure function from a package's source bytes to new bytes
(`codemod`); `registry` names them all, `patchset` brings an engine
environment to a chosen set of them and back. Importing this package loads no
LibCST and no engine; patched code never imports kvseal.
"""
