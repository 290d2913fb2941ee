# SPDX-License-Identifier: Apache-2.0
"""Figures and sentences as people read them."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.reasons import REASONS, Reason
from kvseal.report import words

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
SPEC = build.make_spec()


def result(count=None):
    return build.result(SPEC, build.history(build.passing_events(SPEC)[:count]))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "unknown"), (0, "0"), (0.0, "0"), (3.14159, "3.14"), (1234567.0, "1234567"),
     (-2.5, "−2.5"), (0.000123, "0.000123"), (12345.6, "12346")],
)  # fmt: skip
def test_number(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (None, "unknown"),
        ({"value": 1.25, "low": 1.0, "high": 1.5}, "+25.0 % (0.0 to +50.0)"),
        ({"value": 0.9, "low": None, "high": None}, "−10.0 %"),
    ],
)
def test_change_percent(estimate, text):
    assert words.change_percent(estimate) == text


def test_change_points_of_nothing_has_no_sign():
    assert words.change_points({"value": 0.0, "low": -0.004, "high": 0.2}) == (
        "0 points (0 to +20)"
    )


def test_the_sentence_of_a_pass_says_what_was_compared():
    text = words.verdict_sentence(result())
    assert "keeping 50 % of each prompt's KV cache" in text
    assert "3 of 4 prompts right where the whole cache answered 4" in text
    assert "transformers" in text


def test_without_the_witness_the_sentence_does_not_claim_it():
    spec = build.make_spec(snapkv={"reference": False})
    document = build.result(spec, build.history(build.passing_events(spec)))
    assert document["verdict"] == "PASS"
    assert "transformers" not in words.verdict_sentence(document)


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_gives_a_sentence_that_warns(code):
    reason = Reason(code, "TEXT", 3, "snapkv")
    document = result() | {"verdict": reason.verdict.value, "reasons": [reason.to_json()]}
    text = words.verdict_sentence(document)
    assert text.endswith("prompt 3, SnapKV arm: TEXT.")
    assert ("must not be used" in text) == (reason.verdict.value == "FAIL")


def test_the_worst_reason_is_the_one_told():
    unknown, wrong = Reason("run.truncated", "A"), Reason("reference.differs", "B", 1, "snapkv")
    document = result() | {
        "verdict": "FAIL", "reasons": [unknown.to_json(), wrong.to_json()]
    }  # fmt: skip
    assert words.verdict_sentence(document).endswith("prompt 1, SnapKV arm: B.")


@pytest.mark.parametrize("count", range(len(build.passing_events(SPEC))))
def test_a_run_broken_off_anywhere_can_be_put_in_words(count):
    document = result(count)
    assert all(len(row) == len(words.HEADINGS) for row in words.arm_table(document))
    assert words.setting_rows(document)
    assert words.verdict_sentence(document).startswith("This run does not show")


def test_the_table_has_both_arms_and_the_change():
    rows = {row[0]: row[1:] for row in words.arm_table(result())}
    assert rows["right answers"] == ("4 of 4", "3 of 4", "")
    assert rows["accuracy"][2].startswith("−25 points")
    assert rows["output tokens/s"][:2] == ("2.74", "3.56")
