# SPDX-License-Identifier: Apache-2.0
"""The exact answer rules, each with what it must take and must not."""

import pytest

from kvseal.checkers.answers import RULES, is_correct
from kvseal.errors import EvidenceError
from kvseal.workload.registry import TASKS


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" 71432.", True),
        (" 71432 is the key, not 99999", True),
        ("the number is71432", True),
        (" 714320.", False),
        (" 7143", False),
        (" 71 432", False),
        (" 99999 71432", False),
        ("1. 71432", False),
        ("٧١٤٣٢", False),
        ("", False),
    ],
)
def test_first_number(text, right):
    assert is_correct("needle", text, ["71432"]) is right


@pytest.mark.parametrize(
    ("text", "expected", "right"),
    [
        ("It is Paris.", ["paris"], True),
        ("It is   new\nYork!", ["New York"], True),
        ("the ﬁnal word", ["FINAL"], True),
        ("Parisian", ["Paris"], False),
        ("a.b", ["a.b"], True),
        ("axb", ["a.b"], False),
        ("C++ is it", ["C++"], True),
        ("London", ["Paris", "London"], True),
        ("anything", [], False),
        ("anything", ["", "  "], False),
    ],
)
def test_contains(text, expected, right):
    assert is_correct("file", text, expected) is right


def test_an_unknown_kind_is_refused():
    with pytest.raises(EvidenceError, match="riddle"):
        is_correct("riddle", "", [])


def test_every_task_has_a_rule():
    assert {task.kind for task in TASKS.values()} | {"file", "hub"} == set(RULES)
