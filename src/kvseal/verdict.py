# SPDX-License-Identifier: Apache-2.0
"""Three verdicts and how they combine.

FAIL outranks INCONCLUSIVE, which outranks PASS, so one bad check can't be
outvoted and one unknown can't be passed over. Nothing at all is INCONCLUSIVE:
a run in which no check took place has shown nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Verdict(enum.Enum):
    """What the checks of a run amount to."""

    PASS = "PASS"  # noqa: S105  (a verdict, no password)
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_status(self) -> int:
        """0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 2}[self]


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of several checks together; of none, INCONCLUSIVE."""
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS):
        if verdict in seen:
            return verdict
    return Verdict.INCONCLUSIVE
