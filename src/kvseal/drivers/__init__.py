# SPDX-License-Identifier: Apache-2.0
"""What is done to real engines, step by step, and written down as it happens.

A driver writes history and never judges: kvseal.checkers read the history, here
and again on any other machine.
"""
