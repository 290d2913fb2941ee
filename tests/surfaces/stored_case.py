# SPDX-License-Identifier: Apache-2.0
"""What one test stores under, so that tests can share servers."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """What one test stores under: a tenant and tokens that no other test has."""

    salt: str
    tokens: list[int]
    seed: int

    def variant(self, scope: str = "q", number: int = 0) -> str:
        """Return a variant text of this test."""
        made = random.Random(f"{self.salt}{scope}{number}")  # noqa: S311 - a name, no secret
        return scope + "1" + "".join(made.choices("abcdefghijklmnopqrstuvwxyz234567", k=32))
