# SPDX-License-Identifier: Apache-2.0
"""Ordinary entries that have the chunk hash of a variant's entry, of one model and tenant.

A chunk hash stands for token IDs alone. So such an ordinary entry says: the
same tokens were also stored as ordinary KV. That is so where somebody sent
those tokens as a prompt, and also where transformed KV was stored without its
variant, which every later prompt of these tokens would be served. The name
can't tell the two apart, therefore it is worth a look.

Twelve bytes an entry: the first eight of the chunk hash, and a number for
model and tenant. Two hashes that agree in eight bytes by chance are one pair
in 10^19. Called by kvseal.audit.summary.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

BUCKETS = 256
MAX_ENTRIES = 1 << 25
"""Entries that are compared, 400 MB; further ones are only counted as left out."""


class Shadows:
    """Collects chunk hashes while a store is walked, compares them at the end."""

    def __init__(self, limit: int = MAX_ENTRIES) -> None:
        self._limit = limit
        self._sides = {
            transformed: [(array("Q"), array("I")) for _ in range(BUCKETS)]
            for transformed in (False, True)
        }
        self.compared = 0
        self.left_out = 0

    def add(self, chunk_hash: str, group: int, *, transformed: bool) -> None:
        """Take in one entry; `group` numbers its model and tenant, `chunk_hash` is hex."""
        if self.compared >= self._limit:
            self.left_out += 1
            return
        self.compared += 1
        prefix = int(chunk_hash[:16], 16)
        hashes, groups = self._sides[transformed][prefix % BUCKETS]
        hashes.append(prefix)
        groups.append(group)

    def found(self) -> Iterator[tuple[str, int]]:
        """Yield the hash's beginning, as hex, and the group of each ordinary entry in question."""
        for ordinary, variants in zip(self._sides[False], self._sides[True], strict=True):
            named = set(zip(*variants, strict=True))
            if named:
                for prefix, group in zip(*ordinary, strict=True):
                    if (prefix, group) in named:
                        yield f"{prefix:016x}", group
