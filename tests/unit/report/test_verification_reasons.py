# SPDX-License-Identifier: Apache-2.0
"""What is said of many answers and probes is said once, and nothing but repetition is left out."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.records import verification as new
from kvseal.report.verification import console
from kvseal.report.verification_reasons import difference_rows, grouped, listed

CHECKERS = Path(__file__).parents[1] / "checkers" / "verification"
build = SimpleNamespace(**runpy.run_path(str(CHECKERS / "builder.py")))
ONCE, THRICE = build.probe(513, 1), build.probe(700, 3)


def events():
    return build.passing_events([ONCE, THRICE], ["lmcache"])


def answer(made, probe, repetition):
    kind = "reuse" if repetition else "cold"
    return build.answer_of(made, "lmcache", probe.id, kind, repetition)


def said(made, **options):
    return [str(group) for group in grouped(build.report(made), **options)]


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_names_in_a_sentence(names, text):
    assert listed(names) == text


def test_answers_that_differ_alike_share_a_line():
    made = events()
    for repetition in (1, 2, 3):
        build.give(answer(made, THRICE, repetition), 11, 7, 8, 9)
    (group,) = grouped(build.report(made))
    assert (group.verdict, group.code, group.count) == ("FAIL", "difference.unexplained", 3)
    assert str(group) == (
        "lmcache, raw-700-x3: each of reusing answers 1, 2 and 3 takes 7 instead of 12 at token 1 "
        "(the control's two best are 1 apart there)"
    )


def test_answers_that_differ_otherwise_keep_their_own():
    made = events()
    build.give(answer(made, THRICE, 1), 11, 7, 8, 9)
    build.give(answer(made, THRICE, 2), 11, 12, 8, 9)
    build.give(answer(made, THRICE, 3), 11, 7, 9, 9)
    first, second = said(made)
    assert "answers 1 and 3 takes 7 instead of 12 at token 1" in first
    assert "reusing answer 2 takes 8 instead of 13 at token 2" in second


def test_how_far_log_probabilities_moved_becomes_a_range():
    made = events()
    for repetition, distance in ((1, 0.5), (2, 10.25), (3, 2.0)):
        build.shift(answer(made, THRICE, repetition), distance)
    (line,) = said(made)
    assert "answers 1, 2 and 3 has the control's tokens" in line
    assert "moved by 0.5 to 10.2, where rounding in float16 moves them by 0.1 at most" in line


def test_an_answer_anywhere_in_the_text_is_found():
    made = events()
    for repetition in (1, 3):
        answer(made, THRICE, repetition)["cached_tokens"] = None
    assert said(made) == [
        "lmcache, raw-700-x3: nobody counted the cached tokens of each of reusing answers 1 and 3"
    ]


def test_the_same_of_several_probes_names_them():
    made = events()
    for probe in (ONCE, THRICE):
        build.give(answer(made, probe, 1), 11, 7, 8, 9)
    (line,) = said(made)
    assert line.startswith("lmcache, raw-513-x1 and raw-700-x3: reusing answer 1 takes 7 instead")


def test_many_probes_are_counted():
    probes = [build.probe(tokens, 1) for tokens in range(513, 519)]
    made = build.passing_events(probes, ["lmcache"])
    for probe in probes:
        answer(made, probe, 1)["cached_tokens"] = None
    (group,) = grouped(build.report(made))
    assert str(group).startswith("lmcache, raw-513-x1, raw-514-x1, raw-515-x1 and 3 more probes: ")
    assert group.count == 6


def given_up():
    """A target that was disqualified before its first answer, as LMCache is on a CPU."""
    made = [
        event for event in events()
        if event.get("target") != "lmcache" or event["event"].startswith("target_")
    ]  # fmt: skip
    made.insert(-2, new.disqualified(target="lmcache", reason="degraded mode (recompute)"))
    return made


def test_probes_that_were_never_asked_are_one_line_after_the_disqualification():
    assert said(given_up()) == [
        "lmcache: it does not count under the evidence contract: degraded mode (recompute)",
        "lmcache: 2 probes were not asked: none of their 6 answers is there",
    ]
    lines = console(build.report(given_up()), "r").splitlines()
    assert "3 reasons:" in lines
    assert not [line for line in lines if "more, in the report" in line]


def test_a_probe_that_broke_off_is_told_from_those_never_asked():
    made = given_up()
    made.insert(-3, build.answer("lmcache", ONCE, "cold", 0))
    texts = said(made)
    assert "lmcache, raw-513-x1: 1 of 2 answers are there" in texts
    assert "lmcache, raw-700-x3: 0 of 4 answers are there" in texts


def test_no_reason_is_lost_from_the_count():
    made = events()
    for probe in (ONCE, THRICE):
        for repetition in range(probe.reuse_count + 1):
            build.give(answer(made, probe, repetition), 11, 7, 8, 9, cached_tokens=None)
    made.insert(-1, new.error(where="x", message="y"))
    report = build.report(made)
    assert sum(group.count for group in grouped(report)) == len(report["reasons"])
    verdicts = [group.verdict for group in grouped(report)]
    assert verdicts == sorted(verdicts)  # FAIL first


def test_without_differences_only_what_no_row_holds_is_left():
    made = events()
    build.give(answer(made, ONCE, 1), 11, 7, 8, 9)
    build.shift(answer(made, THRICE, 2), 0.25)
    groups = grouped(build.report(made), differences=False)
    assert [group.code for group in groups] == ["difference.hidden"]
    (row,) = difference_rows(build.report(made))
    assert row == ("FAIL", "lmcache", ONCE.id, "1", "1", "12", "7", "1", "0", "nothing")


def test_rows_have_failures_first_and_say_what_explains_a_difference():
    made = events()
    build.give(answer(made, ONCE, 0), 11, 12, finish_reason="stop")
    for repetition, moved in ((1, 0.25), (3, 0.75)):
        build.give(answer(made, THRICE, repetition), 11, 7, 8, 9)
        build.shift(answer(made, THRICE, repetition), moved)
    build.give(answer(made, THRICE, 2), 9, 8, 8, 9)
    assert difference_rows(build.report(made)) == [
        ("FAIL", "lmcache", THRICE.id, "1, 3", "1", "12", "7", "1", "0.75", "nothing"),
        ("FAIL", "lmcache", THRICE.id, "2", "0", "11", "9", "1", "", "nothing"),
        ("INCONCLUSIVE", "lmcache", ONCE.id, "cold", "2", "13", "end", "1", "0", "without reuse"),
    ]


def test_what_was_not_recorded_is_unknown_in_a_row():
    made = events()
    build.give(answer(made, ONCE, 1), 11, 7, 8, 9, top2=[])
    build.answer_of(made, "control", ONCE.id, "control")["top2"] = []
    (row,) = difference_rows(build.report(made))
    assert row[7:] == ("unknown", "unknown", "nothing")
