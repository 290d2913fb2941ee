# SPDX-License-Identifier: Apache-2.0
"""A number handed from name to name through the text; the last name's value is asked.

What it shows: the answer needs every link of the chain, so losing any one of
them from the KV cache is enough to lose it. Source of the task: Hsieh et al.
2024, "RULER", section 3 (variable tracking), asking for the value rather than
for the list of names, so that an answer is one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kvseal.workload.draws import Draws
from kvseal.workload.fitting import Composition, Fact, header

VARIABLES = ("alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta", "zeta")


@dataclass(frozen=True)
class VariableTracking:
    """A chain of `hops` assignments after the first, over `hops` + 1 names."""

    hops: int = 1
    digits: int = 5
    name = "variable_tracking"
    kind = "variable_tracking"

    def compose(self, index: int, draws: Draws) -> Composition:
        """Return the parts of prompt `index`; links stand in order, 5 % to 90 % deep."""
        opening = header(self.name, index, draws)
        names = draws.sample(VARIABLES, self.hops + 1)
        value = draws.digits(self.digits)
        depths = sorted(0.05 + 0.85 * draws.fraction() for _ in names)
        links = [f"The code of {names[0]} is {value}. Remember: {value} is the code of {names[0]}."]
        links += [
            f"The code of {name} is the same as the code of {source}."
            for source, name in pairwise(names)
        ]
        return Composition(
            header=opening,
            facts=tuple(Fact(depth, link) for depth, link in zip(depths, links, strict=True)),
            question=f"What is the code of {names[-1]}, in digits? Remember the code:",
            expected=(value,),
        )
