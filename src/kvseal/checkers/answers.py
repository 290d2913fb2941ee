# SPDX-License-Identifier: Apache-2.0
"""Is an answer right? One exact rule for each kind of question.

- `first_number` (needle, multi_needle, key_value, variable_tracking): the first
  unbroken run of the digits 0–9 in the answer is one of the expected texts.
  What follows is ignored, as a raw completion goes on after its answer; what
  comes before must hold no digit, so listing every number seen scores nothing.
- `contains` (file, hub): one of the expected texts occurs in the answer, both
  normalised (Unicode NFKC, case folded, white space as one space, ends
  trimmed), with no letter or digit directly before or after it.

An empty expectation matches nothing. No rule looks at closeness of meaning.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from kvseal.errors import EvidenceError


def first_number(text: str, expected: Sequence[str]) -> bool:
    """True when the first run of ASCII digits in `text` is one of `expected`."""
    found = re.search(r"[0-9]+", text)
    return found is not None and found.group() in expected


def contains(text: str, expected: Sequence[str]) -> bool:
    """True when one of `expected` stands in `text` as whole words, normalised."""
    answer = normalise(text)
    for candidate in map(normalise, expected):
        if candidate and re.search(rf"(?<!\w){re.escape(candidate)}(?!\w)", answer):
            return True
    return False


def normalise(text: str) -> str:
    """Return `text` in NFKC, case folded, with single spaces and trimmed ends."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


RULES: dict[str, Callable[[str, Sequence[str]], bool]] = {
    "needle": first_number,
    "multi_needle": first_number,
    "key_value": first_number,
    "variable_tracking": first_number,
    "file": contains,
    "hub": contains,
}
"""Kind of question → its rule."""


def is_correct(kind: str, text: str, expected: Sequence[str]) -> bool:
    """Apply the rule of `kind` to the answer `text`.

    Raises:
        EvidenceError: for a kind without a rule.
    """
    if kind not in RULES:
        raise EvidenceError(
            "no answer rule for this kind of question", value=kind, expected=" or ".join(RULES)
        )
    return RULES[kind](text, expected)
