# SPDX-License-Identifier: Apache-2.0
"""What the comparison of ordinary traffic makes of the times it took."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "ordinary_cost.py"
cost = SimpleNamespace(**runpy.run_path(str(BENCH)))


def taken(seconds: float, factor: float = 1.0) -> dict[str, dict[str, float]]:
    """One round in which the patched side took `factor` of the stock side."""
    steps = (*cost.STEPS, cost.CPU)
    stock, patched = dict.fromkeys(steps, seconds), dict.fromkeys(steps, seconds * factor)
    return {cost.STOCK: stock, cost.AGAIN: dict(stock), cost.PATCHED: patched}


def test_ratios_are_of_the_pairs_and_not_of_the_sums() -> None:
    rounds = [taken(1.0, 1.1), taken(100.0, 0.9), taken(1.0, 1.1)]
    found = cost.ratios_of(rounds, 0)[cost.PATCHED]
    assert found["store"]["median"] == pytest.approx(1.1)
    assert found[cost.TOTAL] == found["store"]
    assert (found["store"]["low"], found["store"]["high"]) == pytest.approx((0.9, 1.1))


def test_the_second_stock_server_is_held_against_the_first() -> None:
    found = cost.ratios_of([taken(2.0, 3.0)], 0)
    assert found[cost.AGAIN][cost.TOTAL]["median"] == 1
    assert found[cost.PATCHED][cost.TOTAL]["median"] == 3


def test_a_slow_step_counts_by_its_time_in_the_total() -> None:
    times: dict[str, Any] = taken(1.0)
    times[cost.PATCHED]["store"] = 5.0
    found = cost.ratios_of([times], 0)[cost.PATCHED]
    assert found["store"]["median"] == 5
    assert found[cost.TOTAL]["median"] == 2
    assert found[cost.CPU]["median"] == 1


def test_a_step_counts_with_its_fastest_pass() -> None:
    passes = [taken(2.0)[cost.STOCK], {**taken(3.0)[cost.STOCK], "store": 1.0}]
    assert cost.fastest(passes) == {**taken(2.0)[cost.STOCK], "store": 1.0}


def test_the_interval_holds_the_middle_of_many_medians() -> None:
    values = [1 + number / 1000 for number in range(-50, 51)]
    low, high = cost.interval(values, 0)
    assert 0.97 < low < 1 < high < 1.03
    assert cost.interval(values, 0) == (low, high)


def test_the_table_has_a_line_for_each_length_and_comparison() -> None:
    ratios = cost.ratios_of([taken(1.0, 1.25)], 0)
    lines = cost.markdown({1024: ratios, "all": ratios}).splitlines()
    assert len(lines) == 2 + 4
    assert lines[2].startswith("| 1024 | patched ÷ stock | 1.250 (1.250 to 1.250)")
    assert lines[3].startswith("| 1024 | stock ÷ stock | 1.000")
