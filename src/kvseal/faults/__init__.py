# SPDX-License-Identifier: Apache-2.0
"""Faults made on purpose, to see whether what must notice them does.

Called by measurements of the verifier's power and by tests; nothing that
serves, compares or judges imports this.
"""
