# SPDX-License-Identifier: Apache-2.0
"""What one check says: a name, what was found, what is needed, what to do."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30


class Status(enum.Enum):
    """PASS, FAIL, or UNKNOWN where the machine would not tell."""

    PASS = "PASS"  # noqa: S105  (a verdict)
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Outcome:
    """The result of one check; `remedies` is empty unless it failed or is unknown."""

    name: str
    status: Status
    found: str
    needed: str
    remedies: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        return {
            "name": self.name,
            "status": self.status.value,
            "found": self.found,
            "needed": self.needed,
            "remedies": list(self.remedies),
        }


def judged(name: str, good: bool, found: str, needed: str, remedies: Sequence[str]) -> Outcome:
    """Return PASS, or FAIL with its remedies."""
    if good:
        return Outcome(name, Status.PASS, found, needed)
    return Outcome(name, Status.FAIL, found, needed, tuple(remedies))


def undecided(name: str, reason: str, needed: str, remedies: Sequence[str] = ()) -> Outcome:
    """Return UNKNOWN with the reason in place of what was found."""
    return Outcome(name, Status.UNKNOWN, reason, needed, tuple(remedies))


def gib(size_bytes: float) -> str:
    """Return a size as text, to a tenth of a GiB."""
    return f"{size_bytes / GIB:.1f} GiB"
