# SPDX-License-Identifier: Apache-2.0
"""Several pass keys, each of another thing, scattered; one of them is asked for.

What it shows beyond `needle`: the others are distractors of the same form, so
an answer is right only when the KV of the asked key, and what binds it to its
name, is still there. Source of the task: Hsieh et al. 2024, "RULER", section 3
(multi-keys needle in a haystack); the text is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.workload.draws import Draws
from kvseal.workload.fitting import Composition, Fact, header

THINGS = (
    "red door", "blue gate", "green box", "white tower", "black chest",
    "golden room", "brown cellar", "silver safe",
)  # fmt: skip


@dataclass(frozen=True)
class MultiNeedle:
    """`needles` keys of `digits` digits, one asked for."""

    needles: int = 2
    digits: int = 5
    name = "multi_needle"
    kind = "multi_needle"

    def compose(self, index: int, draws: Draws) -> Composition:
        """Return the parts of prompt `index`; the keys stand at 5 % to 90 % depth."""
        opening = header(self.name, index, draws)
        things = draws.sample(THINGS, self.needles)
        keys = [draws.digits(self.digits) for _ in things]
        facts = [
            Fact(
                0.05 + 0.85 * draws.fraction(),
                f"The pass key of the {thing} is {key}. Remember it. "
                f"{key} is the pass key of the {thing}.",
            )
            for thing, key in zip(things, keys, strict=True)
        ]
        asked = draws.below(self.needles)
        question = f"the pass key of the {things[asked]}"
        return Composition(
            header=opening,
            facts=tuple(facts),
            question=f"What is {question}? T{question[1:]} is",
            expected=(keys[asked],),
        )
