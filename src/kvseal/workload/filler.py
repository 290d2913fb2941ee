# SPDX-License-Identifier: Apache-2.0
"""Plain sentences that hold no number and answer no question.

Put together from drawn parts, so that two prompts, and two passages of one
prompt, are not the same text: repeated text would let a cache hit, or a model
that copies, look better than it is.
"""

from __future__ import annotations

from kvseal.workload.draws import Draws

SUBJECTS = (
    "The old ferry", "A grey heron", "The village baker", "My neighbour", "The night train",
    "A tired mule", "The tall clerk", "The harbour master", "A small brass band", "The gardener",
    "The river", "A stray dog", "The school bell", "The weaver", "A cold wind", "The lamp keeper",
    "The younger sister", "A cart of hay", "The stone bridge", "The tailor", "A flock of geese",
    "The post rider", "The orchard", "A quiet crowd",
)  # fmt: skip

PREDICATES = (
    "waited", "turned back", "moved slowly", "stood in the rain", "was seen again",
    "came home late", "rested", "went on as before", "made little noise", "kept to the left side",
    "looked smaller than usual", "stopped for a while", "caught the evening light",
    "was talked about", "took the longer way", "slept through the storm", "smelled of smoke",
    "arrived without warning", "had not changed", "followed the others",
)  # fmt: skip

PLACES = (
    "near the mill", "behind the chapel", "along the canal", "at the edge of the wood",
    "below the castle", "across the square", "by the salt road", "in front of the inn",
    "under the lime trees", "beyond the last house", "on the northern shore", "beside the well",
    "at the foot of the hill", "past the toll gate", "inside the courtyard", "over the low fields",
)  # fmt: skip

ENDINGS = (
    "", "", "", " until the evening", " as people say", " for most of the week",
    " while the others ate", " and nobody asked why", " before the frost", " after the market",
    " like every autumn", " without a word",
)  # fmt: skip


def filler_sentence(draws: Draws) -> str:
    """Return one sentence of some eight to eighteen tokens, ending in a full stop."""
    subject, predicate = draws.choice(SUBJECTS), draws.choice(PREDICATES)
    return f"{subject} {predicate} {draws.choice(PLACES)}{draws.choice(ENDINGS)}."
