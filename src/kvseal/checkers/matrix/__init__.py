# SPDX-License-Identifier: Apache-2.0
"""Judge a matrix run: does every request get the KV that it names, and no other?

The worry: KV is looked up by token IDs, and transformed KV stands under token
IDs that it was not computed from. So whoever sends those IDs, for whatever
reason, could be served it, and no error would show. Every case of the table
says what must come of one such request; what was counted and answered decides,
against parties that have no cache. One loaded token where none may be loaded is
a failure, whatever the answer.

`judge` reads the run spec, the history and the table, and nothing else.
"""

from kvseal.checkers.matrix.document import COUNTED, SCHEMA, judge, verdict_of
from kvseal.checkers.matrix.plan import STOCK, Spec
from kvseal.checkers.matrix.reasons import REASONS, Outcome
from kvseal.checkers.matrix.stored import judge_again

__all__ = [
    "COUNTED",
    "REASONS",
    "SCHEMA",
    "STOCK",
    "Outcome",
    "Spec",
    "judge",
    "judge_again",
    "verdict_of",
]
