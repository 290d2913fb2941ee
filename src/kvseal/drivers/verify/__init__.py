# SPDX-License-Identifier: Apache-2.0
"""`kvseal verify`: a control without any cache, then each target, each in its own process.

`preflight` decides everything before an engine starts, `drive` runs what it
decided and writes history, `evidence` keeps the report on disk whole at every
moment. None of them judges: kvseal.checkers.verification does.
"""
