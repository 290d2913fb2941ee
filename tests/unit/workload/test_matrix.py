# SPDX-License-Identifier: Apache-2.0
"""What the table of cases says of itself: which are chosen, and what each is about."""

from __future__ import annotations

import pytest

from kvseal.errors import OptionError
from kvseal.workload.matrix import AFTERS, ARTIFACTS, BACKENDS, CASES, case_named, chosen


def test_no_names_are_all_cases() -> None:
    assert chosen(()) == CASES


def test_chosen_cases_keep_the_order_of_the_table() -> None:
    names = [case.name for case in CASES]
    assert [case.name for case in chosen([names[5], names[0]])] == [names[0], names[5]]


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        chosen(["same-transform", "same-transfrom"])
    assert caught.value.value == "same-transfrom"
    assert "same-transform" in (caught.value.expected or "")


def test_every_case_is_about_known_artifacts_and_all_of_them_are_used() -> None:
    assert {name for case in CASES for name in case.artifacts} == set(ARTIFACTS)


@pytest.mark.parametrize(
    ("case", "artifacts"),
    [
        ("same-transform", {"snapkv-a"}),
        ("other-query", {"snapkv-a", "snapkv-a-query-b"}),
        ("chained-as-parent", {"chained-a", "snapkv-a"}),
        ("capability", {"snapkv-a"}),
    ],
)
def test_artifacts_that_a_case_stores_asks_for_or_names(case: str, artifacts: set[str]) -> None:
    assert case_named(case).artifacts == artifacts


def test_each_case_runs_somewhere() -> None:
    for case in CASES:
        assert any(case.runs_in(backend, after) for backend in BACKENDS for after in AFTERS)
    files = case_named("request-local-files")
    assert files.runs_in("fs", "none") and not files.runs_in("mp", "none")
