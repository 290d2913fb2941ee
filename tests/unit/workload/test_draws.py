# SPDX-License-Identifier: Apache-2.0
"""Draws: pinned values, ranges, and no method that may change between Pythons."""

import inspect
import re

from hypothesis import given
from hypothesis import strategies as st

from kvseal.workload import draws
from kvseal.workload.draws import Draws


def test_the_sequence_is_pinned():
    made = Draws("needle", 0)
    assert [made.below(1000) for _ in range(5)] == PINNED
    assert Draws("needle", 0).below(1000) == PINNED[0]
    assert Draws("needle", 1).below(1000) != PINNED[0]


PINNED = [20, 554, 36, 619, 313]


def test_only_the_promised_method_is_used():
    used = set(re.findall(r"self\._random\.(\w+)", inspect.getsource(draws)))
    assert used == {"random"}


@given(st.integers(), st.integers(1, 10**6))
def test_below_stays_below(seed, limit):
    assert 0 <= Draws(seed % 2**53).below(limit) < limit


@given(st.integers(0, 99), st.integers(1, 12))
def test_digits_have_their_number_and_no_leading_zero(seed, count):
    text = Draws(seed).digits(count)
    assert len(text) == count
    assert text[0] != "0"


@given(st.integers(0, 99), st.lists(st.integers(), unique=True, min_size=1), st.data())
def test_a_sample_has_different_entries(seed, items, data):
    count = data.draw(st.integers(0, len(items)))
    found = Draws(seed).sample(items, count)
    assert len(set(found)) == count
    assert set(found) <= set(items)


def test_every_order_of_a_sample_comes_up():
    seen = {tuple(Draws(seed).sample("abc", 3)) for seed in range(200)}
    assert len(seen) == 6
