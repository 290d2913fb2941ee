# SPDX-License-Identifier: Apache-2.0
"""What a prompt is, and the little that is asked of a tokenizer.

No tokenizer is loaded here: the drivers pass one in, and tests pass a toy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token IDs and back. Special tokens that `encode` adds count as prompt tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the token IDs of `text`, the ones the engine will be sent."""
        ...

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of `token_ids`."""
        ...


@dataclass(frozen=True)
class Prompt:
    """One question with its context, ready to be sent as token IDs.

    `index` counts from 0 over the whole run, whatever the dataset. `token_ids`
    is exactly `tokenizer.encode(text)`. `expected` holds the acceptable answers
    and `kind` names the rule that compares them (kvseal.checkers.answers).
    """

    index: int
    dataset: str
    text: str
    token_ids: tuple[int, ...]
    expected: tuple[str, ...]
    kind: str
