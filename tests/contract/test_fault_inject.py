# SPDX-License-Identifier: Apache-2.0
"""LMCache's own fault injection: what it drops is found and then not loaded, never wrong bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvseal.backends.fault_inject import failing


@pytest.mark.parametrize(("rate", "fewest", "most"), [(1.0, 0, 0), (0.5, 5, 35), (0.0, 40, 40)])
def test_a_dropped_entry_is_a_miss(
    *, lmcache_version: str, identity: Any, tmp_path: Path, rate: float, fewest: int, most: int
) -> None:
    from kvseal.backends.adapter import opened_adapter

    several = [
        replace(identity.of_kind(kind), group=group)
        for kind in ("ordinary", "salted", "q", "p")
        for group in range(10)
    ]
    entries = {one.key: one.payload() for one in several}
    adapter = failing({"type": "fs", "base_path": str(tmp_path)}, rate=rate)
    size = len(identity.payload())
    with opened_adapter(adapter, payload_bytes=size) as opened:
        opened.store(entries)
        assert all(opened.found(list(entries)))
        first, again = opened.load(list(entries)), opened.load(list(entries))
    assert first == again, "which entries fail is decided by their keys"
    assert {data for data in first if data is not None} <= set(entries.values())
    for key, data in zip(entries, first, strict=True):
        assert data in (None, entries[key])
    assert fewest <= sum(data is not None for data in first) <= most
