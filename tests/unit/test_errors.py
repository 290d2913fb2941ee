# SPDX-License-Identifier: Apache-2.0
"""The tree of errors and what each says to a user."""

import inspect

import pytest

from kvseal import errors
from kvseal.errors import KvsealError, OptionError

TREE = [
    item
    for item in vars(errors).values()
    if inspect.isclass(item) and issubclass(item, KvsealError)
]


def test_all_errors_end_with_exit_status_2_and_are_in_the_drawn_tree() -> None:
    assert len(TREE) >= 10
    for error in TREE:
        assert error.exit_status == 2
        assert error.__name__.endswith("Error")
        assert error.__name__ in (errors.__doc__ or "")


def test_all_parts_are_shown_in_order() -> None:
    error = OptionError("too large", option="X", value="9", expected="1 to 5", remedy="lower it")
    assert str(error).splitlines() == [
        "too large",
        "  option:   X = '9'",
        "  expected: 1 to 5",
        "  remedy:   lower it",
    ]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"option": "X"}, "  option:   X"),
        ({"option": "X", "value": 0}, "  option:   X = 0"),
        ({"option": "X", "value": ""}, "  option:   X = ''"),
        ({"value": 3}, "  value:    3"),
    ],
)
def test_a_part_that_is_not_given_is_left_out(fields: dict[str, object], line: str) -> None:
    assert str(KvsealError("m", **fields)) == f"m\n{line}"  # type: ignore[arg-type]
    assert str(KvsealError("m")) == "m"
