# SPDX-License-Identifier: Apache-2.0
"""What the measurement of the verifier's power counts, and when it calls the alarm false."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "detector_power.py"
power = SimpleNamespace(**runpy.run_path(str(BENCH)))

NOTHING = {
    "reuses": 0, "changed_token": 0, "changed_token_failed": 0, "changed_token_inconclusive": 0,
    "changed_token_passed": 0, "same_tokens_inconclusive": 0, "same_tokens_passed": 0,
    "failed": 0,
}  # fmt: skip


def probe(name: str, verdict: str, *equal: bool | None) -> dict[str, Any]:
    return {
        "probe": name,
        "verdict": verdict,
        "answers": [{"equal_control": value} for value in equal],
    }


def table(*probes: dict[str, Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = power.summarise({"targets": [{"probes": list(probes)}]})
    return found


@pytest.mark.parametrize(
    ("verdict", "equal", "counted"),
    [
        ("fail", (True, False), {"changed_token", "changed_token_failed", "failed"}),
        ("inconclusive", (True, False), {"changed_token", "changed_token_inconclusive"}),
        ("pass", (True, False), {"changed_token", "changed_token_passed"}),
        ("inconclusive", (True, True), {"same_tokens_inconclusive"}),
        ("pass", (True, True), {"same_tokens_passed"}),
        ("fail", (True, True), {"failed"}),
        ("inconclusive", (True, None), {"same_tokens_inconclusive"}),
        ("control_match", (True, True), set()),
        ("fail", (False, False), {"changed_token", "changed_token_failed", "failed"}),
    ],
)
def test_one_probe(verdict: str, equal: tuple[bool | None, ...], counted: set[str]) -> None:
    row = table(probe("zero:raw-257-x1", verdict, *equal))["zero"]
    assert row == {**NOTHING, "reuses": 1, **dict.fromkeys(counted, 1)}


def test_faults_apart_and_clean_rounds_together() -> None:
    found = table(
        probe("zero:raw-257-x1", "fail", False),
        probe("zero:raw-512-x1", "pass", True),
        probe("one_bit:raw-257-x1", "pass", True),
        probe("clean0:raw-257-x1", "pass", True),
        probe("clean19:raw-257-x1", "fail", False),
    )
    assert list(found) == ["zero", "one_bit", "clean"]
    assert {name: row["reuses"] for name, row in found.items()} == {
        "zero": 2, "one_bit": 1, "clean": 2,
    }  # fmt: skip
    assert found["zero"]["failed"] == 1
    assert found["clean"]["failed"] == 1


def test_all_targets_count() -> None:
    one = {"probes": [probe("zero:a", "fail", False)]}
    assert power.summarise({"targets": [one, one]})["zero"]["changed_token_failed"] == 2


def test_nothing_is_no_table() -> None:
    assert table() == {}


def test_what_must_not_be_caught() -> None:
    assert power.HARMLESS == ("clean", "unchanged", "rolled")


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    power.show(table(probe("zero:a", "fail", False), probe("clean0:a", "pass", True)))
    heading, zero, clean = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[-1].strip() == "same tokens passed"
    assert zero.split() == ["zero", "1", "1", "1", "0", "0", "0", "0"]
    assert clean.split() == ["clean", "1", "0", "0", "0", "0", "0", "1"]
