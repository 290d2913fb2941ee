# SPDX-License-Identifier: Apache-2.0
"""Three verdicts: order, and what nothing at all amounts to."""

from hypothesis import given
from hypothesis import strategies as st

from kvseal.verdict import Verdict, merge

VERDICTS = st.lists(st.sampled_from(list(Verdict)))


def test_nothing_shown_is_inconclusive() -> None:
    assert merge([]) is Verdict.INCONCLUSIVE
    assert merge(iter([])) is Verdict.INCONCLUSIVE


def test_exit_statuses() -> None:
    assert [verdict.exit_status for verdict in Verdict] == [0, 1, 2]
    assert [verdict.value for verdict in Verdict] == ["PASS", "FAIL", "INCONCLUSIVE"]


@given(VERDICTS)
def test_pass_needs_at_least_one_and_all(verdicts: list[Verdict]) -> None:
    passed = bool(verdicts) and all(item is Verdict.PASS for item in verdicts)
    assert (merge(verdicts) is Verdict.PASS) == passed
    assert (merge(verdicts) is Verdict.FAIL) == (Verdict.FAIL in verdicts)


@given(VERDICTS.filter(bool), VERDICTS.filter(bool))
def test_merging_in_parts_or_another_order_changes_nothing(
    first: list[Verdict], second: list[Verdict]
) -> None:
    assert merge([merge(first), merge(second)]) is merge(first + second)
    assert merge(reversed(first + second)) is merge(first + second)
