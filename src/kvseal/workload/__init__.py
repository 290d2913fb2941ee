# SPDX-License-Identifier: Apache-2.0
"""Prompts: seeded long-context tasks sized in tokens, a local file, a dataset of the hub.

One task or source a file; `registry` finds them by name. Nothing here starts an
engine, judges an answer or reads a clock.
"""
