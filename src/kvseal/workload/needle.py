# SPDX-License-Identifier: Apache-2.0
"""One pass key somewhere in unrelated text, asked for at the end.

What it shows: whether the one passage that matters survives the compaction of
the KV cache. A model that answers without compression and fails with it has
lost exactly that passage. Source of the task: Mohtashami and Jaggi 2023,
"Landmark Attention", section 4.2 (passkey retrieval); the text is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.workload.draws import Draws
from kvseal.workload.fitting import Composition, Fact, header


@dataclass(frozen=True)
class Needle:
    """The pass key task. `digits` is the length of the key."""

    digits: int = 5
    name = "needle"
    kind = "needle"

    def compose(self, index: int, draws: Draws) -> Composition:
        """Return the parts of prompt `index`; the key stands at 5 % to 90 % depth."""
        key = draws.digits(self.digits)
        fact = f"The pass key is {key}. Remember it. {key} is the pass key."
        return Composition(
            header=header(self.name, index, draws),
            facts=(Fact(0.05 + 0.85 * draws.fraction(), fact),),
            question="What is the pass key? The pass key is",
            expected=(key,),
        )
