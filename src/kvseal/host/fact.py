# SPDX-License-Identifier: Apache-2.0
"""One thing known about this machine, or not, with where it was looked up."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Fact(Generic[T]):
    """A value with its source; `value` is None when unknown, and `reason` then says why."""

    value: T | None
    source: str
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fact as plain JSON values."""
        plain = dataclasses.asdict(self)
        if not self.reason:
            del plain["reason"]
        return plain


def unknown(source: str, reason: str) -> Fact[Any]:
    """Return a fact that could not be learnt from `source`."""
    return Fact(None, source, reason)
