# SPDX-License-Identifier: Apache-2.0
"""A short register of names and numbers in one place; one number is asked for.

What it shows: the pairs stand side by side, so a compaction that keeps the
region but drops single tokens in it mixes them up. Source of the task: Liu et
al. 2024, "Lost in the Middle", section 3 (key-value retrieval), with few pairs
and plain sentences in place of a large JSON object.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.workload.draws import Draws
from kvseal.workload.fitting import Composition, Fact, header

NAMES = (
    "Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Henry",
    "Irene", "Jacob", "Karen", "Louis", "Maria", "Nora", "Oscar", "Paula",
)  # fmt: skip


@dataclass(frozen=True)
class KeyValue:
    """`pairs` names with a number of `digits` digits each, one asked for."""

    pairs: int = 2
    digits: int = 4
    name = "key_value"
    kind = "key_value"

    def compose(self, index: int, draws: Draws) -> Composition:
        """Return the parts of prompt `index`; the register stands at 10 % to 90 % depth."""
        opening = header(self.name, index, draws)
        names = draws.sample(NAMES, self.pairs)
        numbers = [draws.digits(self.digits) for _ in names]
        register = " ".join(
            f"The number of {name} is {number}."
            for name, number in zip(names, numbers, strict=True)
        )
        asked = draws.below(self.pairs)
        return Composition(
            header=opening,
            facts=(Fact(0.1 + 0.8 * draws.fraction(), f"Register of numbers. {register}"),),
            question=f"What is the number of {names[asked]}? The number of {names[asked]} is",
            expected=(numbers[asked],),
        )
