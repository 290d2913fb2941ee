# SPDX-License-Identifier: Apache-2.0
"""The prompts of the matrix: an artifact's tokens, perhaps a suffix of whole chunks, and a tail.

The tail is what an engine must compute itself: LMCache keeps whole chunks only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvseal.drivers.matrix.artifacts import Made
from kvseal.workload.matrix import Ask


@dataclass(frozen=True)
class Prompts:
    """`suffix` is long enough for every suffix of the table, `tail` shorter than a chunk."""

    made: Mapping[str, Made]
    suffix: Sequence[int]
    tail: Sequence[int]
    chunk_tokens: int

    def of(self, step: Ask) -> list[int]:
        """Return the token IDs that a request sends."""
        return [*self.made[step.prompt].token_ids, *self.rest(step.suffix_chunks)]

    def rest(self, suffix_chunks: int) -> list[int]:
        """Return what follows the artifact's tokens."""
        return [*self.suffix[: suffix_chunks * self.chunk_tokens], *self.tail]

    def hit_tokens(self, step: Ask) -> int:
        """Return the tokens that a full hit loads."""
        own = len(self.made[step.prompt].token_ids)
        return own + step.descendants * self.chunk_tokens
