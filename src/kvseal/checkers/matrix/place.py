# SPDX-License-Identifier: Apache-2.0
"""A cell's place in the matrix: a case, a backend, and what was restarted."""

from __future__ import annotations

from typing import NamedTuple

from kvseal.records.history import Event


class Place(NamedTuple):
    """Where an event belongs, as it says itself: the case may be one that nobody knows."""

    case: str
    backend: str
    after: str

    @classmethod
    def of(cls, event: Event) -> Place:
        """Return the place that an event of a cell names."""
        return cls(event["case"], event["backend"], event["after"])

    def __str__(self) -> str:
        return f"{self.case} on {self.backend} after {self.after}"

    def to_json(self) -> dict[str, str]:
        """Return the place as it stands in the result."""
        return self._asdict()
