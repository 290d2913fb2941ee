# SPDX-License-Identifier: Apache-2.0
"""Estimates against published values and against what must hold for any data."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.checkers.statistics import (
    Estimate,
    bootstrap,
    median,
    quantile,
    throughput,
    wilson,
)

counts = st.integers(1, 2000).flatmap(
    lambda total: st.tuples(st.integers(0, total), st.just(total))
)
numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    # Source: Newcombe 1998, "Two-sided confidence intervals for the single
    # proportion", table I, method 3.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_limits(correct, total, low, high):
    found = wilson(correct, total)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@given(counts)
def test_wilson_holds_its_point_and_solves_its_equation(case):
    correct, total = case
    found = wilson(correct, total)
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in (found.low, found.high):
        distance = (found.value - end) ** 2
        spread = 1.959963984540054**2 * end * (1 - end) / total
        assert math.isclose(distance, spread, rel_tol=1e-6, abs_tol=1e-12)


@given(counts)
def test_wilson_rises_with_the_right_answers_and_narrows_with_the_total(case):
    correct, total = case
    found, wider = wilson(correct, total), wilson(correct * 2, total * 2)
    assert wider.high - wider.low < found.high - found.low
    if correct < total:
        more = wilson(correct + 1, total)
        assert (more.low, more.high) > (found.low, found.high)


def test_wilson_of_nothing_is_nothing():
    assert wilson(0, 0) is None


@pytest.mark.parametrize(
    ("values", "share", "result"),
    [([1.0], 0.9, 1.0), ([1.0, 3.0], 0.5, 2.0), ([4.0, 1.0, 2.0, 3.0], 0.25, 1.75)],
)
def test_quantile_is_linear_between_neighbours(values, share, result):
    assert quantile(values, share) == result


@given(numbers, st.floats(0, 1), st.floats(0, 1))
def test_quantile_stays_inside_and_rises(values, one, other):
    low, high = sorted((one, other))
    assert min(values) <= quantile(values, low) <= max(values)
    assert quantile(values, low) <= quantile(values, high) or math.isclose(
        quantile(values, low), quantile(values, high), rel_tol=1e-9
    )


def test_median_of_nothing_is_nothing():
    assert median([]) is None
    assert median([3.0, 1.0, 2.0]) == 2.0


def mean(rows):
    return sum(rows) / len(rows) if rows else None


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12))
def test_bootstrap_of_a_mean_stays_inside_the_data(rows):
    found = bootstrap(rows, mean)
    assert min(rows) - 1e-9 <= found.low <= found.high <= max(rows) + 1e-9
    assert found.value == mean(rows)


def test_bootstrap_is_the_same_each_time_and_known():
    rows = [1.0, 2.0, 4.0, 8.0, 16.0]
    first, second = bootstrap(rows, mean), bootstrap(rows, mean)
    assert first == second
    assert first == Estimate(6.2, 2.0, 11.6)


def test_bootstrap_covers_a_mean_about_as_often_as_it_says():
    import random

    draws, hits = random.Random(7), 0  # noqa: S311
    for _ in range(60):
        rows = [draws.gauss(5, 2) for _ in range(30)]
        found = bootstrap(rows, mean)
        hits += found.low <= 5 <= found.high
    # 60 trials at 95 %: below 50 has a chance of about one in a hundred thousand.
    # All 60 would have one of about one in twenty, so it is no sign of intervals too wide.
    assert hits >= 50


def test_equal_rows_have_no_width():
    assert bootstrap([2.0] * 5, mean) == Estimate(2.0, 2.0, 2.0)


def test_one_row_has_no_interval_and_none_no_estimate():
    assert bootstrap([2.0], mean) == Estimate(2.0, None, None)
    assert bootstrap([], mean) is None


def test_throughput_is_a_ratio_of_sums():
    assert throughput([10, 30], [1.0, 9.0]) == 4.0
    assert throughput([], []) is None
    assert throughput([5], [0.0]) is None
