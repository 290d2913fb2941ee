# SPDX-License-Identifier: Apache-2.0
"""What explains a difference, and what only looks as if it did."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.prompt_checks import NEAR_TIE_MARGINS
from kvseal.checkers.verification.differences import (
    LOGPROB_BOUNDS,
    difference,
    largest_logprob_difference,
    moved,
)
from kvseal.records.history import Event

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))


def answer(*token_ids, kind="reuse", cached=512, second=build.SECOND, **fields):
    recorded = build.answer("lmcache", build.PAIR[0], kind, 1) | {"cached_tokens": cached}
    build.give(recorded, *token_ids)
    recorded["top2"] = build.top2(token_ids, second)
    return Event(0, "", "answer", recorded | fields)


CONTROL = answer(11, 12, 13, 14, kind="control", cached=0)
TIED = answer(11, 12, 13, 14, kind="control", cached=0, second=build.FIRST - 0.02)


def shifted(event, distance):
    """The same answer with every log-probability moved, and the same margins."""
    fields = {**event.fields}
    build.shift(fields, distance)
    return Event(0, "", "answer", fields)


def found(ours, control=CONTROL, *, cold=None, witnesses=(), dtype="float16"):
    return difference(ours, control, cold=cold, witnesses=witnesses, dtype=dtype)


def test_equal_answers_have_none():
    assert found(answer(11, 12, 13, 14)) is None


@pytest.mark.parametrize(
    ("ours", "index", "control_token", "token", "margin"),
    [
        ((9, 12, 13, 14), 0, 11, 9, 1.0),
        ((11, 12, 13, 9), 3, 14, 9, 1.0),
        ((11, 12), 2, 13, None, 1.0),
        ((11, 12, 13, 14, 15), 4, None, 15, None),
    ],
)
def test_the_first_one_is_told_with_both_tokens(ours, index, control_token, token, margin):
    difference = found(answer(*ours))
    assert difference.to_json() == {
        "index": index, "control_token": control_token, "token": token, "margin": margin,
        "explanation": None,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", NEAR_TIE_MARGINS)
def test_a_tie_is_as_wide_as_the_dtype_rounds(dtype):
    for gap, explanation in ((0.9, "near_tie"), (1.1, None)):
        second = build.FIRST - gap * NEAR_TIE_MARGINS[dtype]
        control = answer(11, 12, 13, 14, kind="control", second=second)
        assert found(answer(11, 112, 8, 9), control, dtype=dtype).explanation == explanation


def test_a_tie_explains_only_the_second_choice():
    assert found(answer(11, 112, 8, 9), TIED).explanation == "near_tie"
    assert found(answer(11, 7, 8, 9), TIED).explanation is None
    assert found(answer(11), TIED).explanation is None


@pytest.mark.parametrize(
    "top2",
    [
        [],
        build.top2([11, 12, 13], build.FIRST),
        [None, None, None, None],
        [[[50, -0.5], [60, -0.5]]] * 4,
        [[[12, -0.5], [12, -0.5]]] * 4,
    ],
)
def test_without_the_control_s_two_best_no_tie_is_assumed(top2):
    control = answer(11, 12, 13, 14, kind="control", top2=top2)
    difference = found(answer(11, 112, 8, 9), control)
    assert (difference.margin, difference.explanation) == (None, None)


def test_an_unknown_dtype_has_no_ties():
    difference = found(answer(11, 112, 8, 9), TIED, dtype="float8")
    assert difference.explanation is None
    assert difference.margin == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("witness", "explanation"),
    [
        ((11, 7, 13, 14), "second_witness"),
        ((11, 6, 8, 9), None),
        ((10, 7, 8, 9), None),
        ((11, 12, 13, 14), None),
    ],
)
def test_a_second_witness_takes_the_same_token_at_the_same_place(witness, explanation):
    difference = found(answer(11, 7, 8, 9), witnesses=[answer(1, 1), answer(*witness)])
    assert difference.explanation == explanation


@pytest.mark.parametrize(
    ("cold", "cached", "explanation"),
    [
        ((11, 7, 8, 9), 0, "like_cold"),
        ((11, 7, 8, 9), 256, None),
        ((11, 7, 8, 9), None, None),
        ((11, 7, 8, 5), 0, None),  # and differs from the cold answer later on
        ((11, 6, 8, 9), 0, None),
        ((10, 7, 8, 9), 0, None),
        ((11, 12, 13, 14), 0, None),
    ],
)
def test_a_cold_answer_explains_only_the_same_answer_and_only_without_a_hit(
    cold, cached, explanation
):
    other = answer(*cold, kind="cold", cached=cached)
    assert found(answer(11, 7, 8, 9), cold=other).explanation == explanation


def test_a_later_tie_of_the_cold_answer_is_one_too():
    cold = answer(11, 7, 8, 9, kind="cold", cached=0, second=build.FIRST - 0.02)
    assert found(answer(11, 7, 8, 109), cold=cold).explanation == "like_cold"


@pytest.mark.parametrize(
    ("cached", "explanation"), [(0, "without_reuse"), (256, None), (None, None)]
)
def test_a_cold_answer_itself_is_excused_only_when_it_reused_nothing(cached, explanation):
    ours = answer(11, 7, 8, 9, kind="cold", cached=cached)
    assert found(ours, cold=ours).explanation == explanation


def test_a_reusing_answer_without_a_hit_is_not_excused():
    assert found(answer(11, 7, 8, 9, cached=0)).explanation is None


def test_the_largest_distance_of_equal_tokens_is_told():
    ours = answer(11, 12, 8, 9)
    ours["top2"][0][0][1] = build.FIRST - 0.25
    ours["top2"][1][0][1] = build.FIRST + 0.125
    ours["top2"][2][0][1] = 9.0  # after the first difference nothing is comparable
    assert largest_logprob_difference(ours, CONTROL) == 0.25


@pytest.mark.parametrize(
    ("ours", "control"),
    [(answer(9, 12), CONTROL), (answer(11, 12, top2=[]), CONTROL), (CONTROL, answer(11, top2=[]))],
)
def test_where_nothing_is_comparable_there_is_no_distance(ours, control):
    assert largest_logprob_difference(ours, control) is None


@pytest.mark.parametrize("dtype", LOGPROB_BOUNDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_log_probabilities_may_move_as_far_as_the_dtype_rounds(dtype, sign):
    bound = LOGPROB_BOUNDS[dtype]
    assert moved(shifted(CONTROL, sign * 0.99 * bound), CONTROL, dtype) is None
    far = moved(shifted(CONTROL, sign * 1.01 * bound), CONTROL, dtype)
    assert far == pytest.approx(1.01 * bound)


def test_bounds_and_ties_are_known_for_the_same_dtypes():
    assert LOGPROB_BOUNDS.keys() == NEAR_TIE_MARGINS.keys()
    assert LOGPROB_BOUNDS["float32"] < LOGPROB_BOUNDS["float16"] < LOGPROB_BOUNDS["bfloat16"]


def test_nothing_is_claimed_without_a_bound_or_without_log_probabilities():
    assert moved(shifted(CONTROL, 9), CONTROL, "float16") is not None
    assert moved(shifted(CONTROL, 9), CONTROL, "float8") is None
    unknown = answer(11, 12, 13, 14, top2=[])
    assert moved(unknown, CONTROL, "float16") is None
    assert moved(shifted(CONTROL, 9), unknown, "float16") is None


def test_only_tokens_before_the_first_difference_are_looked_at():
    ours = answer(11, 12, 8, 9)
    ours["top2"][2][0][1] = ours["top2"][3][0][1] = 9.0
    assert moved(ours, CONTROL, "float16") is None
    ours["top2"][1][0][1] = 9.0
    assert moved(ours, CONTROL, "float16") == 9.5


FAR, NEAR = 2 * LOGPROB_BOUNDS["float16"], LOGPROB_BOUNDS["float16"] / 2


@pytest.mark.parametrize(("distance", "explanation"), [(NEAR, "near_tie"), (FAR, None)])
def test_a_tie_excuses_no_answer_whose_log_probabilities_moved_before_it(distance, explanation):
    ours = shifted(answer(11, 112, 8, 9), distance)
    assert found(ours, TIED).explanation == explanation


def test_a_tie_at_the_first_token_has_nothing_before_it():
    assert found(shifted(answer(111, 12, 8, 9), FAR), TIED).explanation == "near_tie"


@pytest.mark.parametrize(("distance", "explanation"), [(NEAR, "second_witness"), (FAR, None)])
def test_a_witness_excuses_only_an_answer_that_is_like_it(distance, explanation):
    """Native caching took a tie's other side; wrong KV did so too, and is still wrong."""
    ours = shifted(answer(11, 7, 8, 9), distance)
    assert found(ours, witnesses=[answer(11, 7, 8, 9)]).explanation == explanation


@pytest.mark.parametrize(("distance", "explanation"), [(NEAR, "like_cold"), (FAR, None)])
def test_a_cold_answer_excuses_only_an_answer_that_is_like_it(distance, explanation):
    cold = answer(11, 7, 8, 9, kind="cold", cached=0)
    assert found(shifted(answer(11, 7, 8, 9), distance), cold=cold).explanation == explanation


def test_a_witness_that_drifted_itself_still_excuses_what_drifted_with_it():
    drifted = shifted(answer(11, 7, 8, 9), FAR)
    assert found(drifted, witnesses=[drifted]).explanation == "second_witness"
