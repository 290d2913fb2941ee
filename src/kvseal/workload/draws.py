# SPDX-License-Identifier: Apache-2.0
"""Seeded draws that give the same values on every Python version.

Of random.Random only `random()` is promised to keep its sequence for a seed
from one Python version to the next (library reference, "Notes on
Reproducibility"); choice, sample and shuffle are not. So everything here is
made from `random()` alone. Not for secrets.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from kvseal.canonical import digest

Item = TypeVar("Item")


class Draws:
    """An endless sequence of draws fixed by the values it is made from."""

    def __init__(self, *key: str | int) -> None:
        self._random = random.Random(int(digest(list(key)), 16))  # noqa: S311

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def below(self, limit: int) -> int:
        """Return an integer in 0 … limit-1; `limit` far below 2^53."""
        return int(self._random.random() * limit)

    def choice(self, items: Sequence[Item]) -> Item:
        """Return one of `items`."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """Return `count` different entries of `items` in drawn order."""
        pool = list(items)
        for position in range(count):
            other = position + self.below(len(pool) - position)
            pool[position], pool[other] = pool[other], pool[position]
        return pool[:count]

    def digits(self, count: int) -> str:
        """Return a number of `count` decimal digits without a leading zero."""
        lowest = 10 ** (count - 1)
        return str(lowest + self.below(9 * lowest))
