# SPDX-License-Identifier: Apache-2.0
"""Judgement from records alone: no engine, no file, no clock, no network.

A checker gets the run spec and the history of a run and says what they amount
to, so `kvseal check RUN` repeats a verdict on any machine, years later.
"""
