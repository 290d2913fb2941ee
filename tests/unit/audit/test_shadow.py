# SPDX-License-Identifier: Apache-2.0
"""Ordinary entries are compared with variants of their model and tenant, and with no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvseal.audit.shadow import Shadows

sides = st.sets(st.tuples(st.binary(min_size=8, max_size=8), st.integers(0, 3)), max_size=30)


@given(ordinary=sides, variants=sides)
def test_exactly_the_common_ones_are_found(
    ordinary: set[tuple[bytes, int]], variants: set[tuple[bytes, int]]
) -> None:
    shadows = Shadows()
    for chunk_hash, group in ordinary:
        shadows.add(chunk_hash.hex() + "ff" * 24, group, transformed=False)
    for chunk_hash, group in variants:
        shadows.add(chunk_hash.hex() + "00" * 24, group, transformed=True)
    expected = {(chunk_hash.hex(), group) for chunk_hash, group in ordinary & variants}
    assert sorted(shadows.found()) == sorted(expected)
    assert shadows.compared == len(ordinary) + len(variants)


def test_short_hashes_are_compared_too() -> None:
    shadows = Shadows()
    shadows.add("aabb", 0, transformed=False)
    shadows.add("aabb", 0, transformed=True)
    shadows.add("aa", 0, transformed=False)
    assert list(shadows.found()) == [("000000000000aabb", 0)]


def test_beyond_the_limit_is_counted_as_left_out() -> None:
    shadows = Shadows(limit=2)
    for place in range(5):
        shadows.add(f"{place:016x}", 0, transformed=False)
    assert (shadows.compared, shadows.left_out) == (2, 3)
