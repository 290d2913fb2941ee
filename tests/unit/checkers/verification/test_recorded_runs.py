# SPDX-License-Identifier: Apache-2.0
"""The recorded H200 runs are judged as docs/evidence/verify-h200 says: rules change in the open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvseal.checkers.verification.acceptance import compare
from kvseal.checkers.verification.differences import LOGPROB_BOUNDS
from kvseal.checkers.verification.fixture import known_fixture, parse_fixture
from kvseal.report.verification_folder import read_verification

RUNS = Path(__file__).resolve().parents[4] / "docs" / "evidence" / "verify-h200"

VERDICTS = {
    "strict-smoke": (1, {"lmcache": "fail"}),
    "strict-standard": (1, {"lmcache": "fail", "native": "pass"}),
    "strict-acceptance-l4": (1, {"lmcache": "fail", "native": "pass"}),
    "strict-acceptance-h200": (1, {"lmcache": "fail", "native": "pass"}),
    "mp-smoke": (0, {"mp": "pass"}),
    "mp-standard": (2, {"mp": "inconclusive", "native": "pass"}),
    "mp-acceptance-l4": (0, {"mp": "pass", "native": "pass"}),
    "power": (1, {"mp": "fail"}),
}


def judged(name: str) -> dict[str, Any]:
    return read_verification(RUNS / f"{name}.json").report


def test_every_recorded_run_is_in_the_table() -> None:
    assert {path.stem for path in RUNS.glob("*.json")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_is_the_recorded_one(name: str) -> None:
    report = judged(name)
    exit_status, targets = VERDICTS[name]
    assert report["exit_status"] == exit_status
    assert {target["target"]: target["verdict"] for target in report["targets"]} == targets
    assert report["claim_eligible"] is False
    assert report["generations"]["completed"] == report["generations"]["planned"]


@pytest.mark.parametrize("name", VERDICTS)
def test_the_stored_report_is_what_its_history_gives(name: str) -> None:
    stored = json.loads((RUNS / f"{name}.json").read_text(encoding="utf-8"))
    assert stored == judged(name)


def test_what_is_not_stock_is_told_with_versions_and_digests() -> None:
    contract = judged("strict-standard")["contract"]
    found = {deviation["what"]: deviation["found"] for deviation in contract["deviations"]}
    assert found["torch"] == "2.11.0"
    assert found["lmcache-files"]["changed_compiled"][
        "lmcache/cuda_ops.cpython-312-x86_64-linux-gnu.so"
    ]
    assert found["vllm-files"]["version"] == "0.28.0"


def test_the_second_acceptance_run_matches_the_fixture_made_of_the_first() -> None:
    fixture = parse_fixture(known_fixture("h200-lmcache-0.5.4"))
    for name in ("strict-acceptance-l4", "strict-acceptance-h200"):
        report = judged(name)
        found = compare(
            fixture,
            report["targets"],
            report["probes"],
            report["exit_status"],
            complete=report["complete"],
        )
        assert found["matched"], found["differences"]


def test_sound_and_corrupted_reuse_lie_far_from_the_bound() -> None:
    """The bound was set between these two; it must stay there."""
    sound, corrupted = [], []
    for name in VERDICTS:
        if name == "power":
            continue
        for target in judged(name)["targets"]:
            for probe in target["probes"]:
                for answer in probe["answers"]:
                    if answer["cached_tokens"] and answer["equal_control"]:
                        side = corrupted if target["target"] == "lmcache" else sound
                        side.append(answer["largest_logprob_difference"])
    assert (len(sound), len(corrupted)) == (178, 16)
    assert max(sound) < LOGPROB_BOUNDS["float16"] / 5
    assert min(corrupted) > LOGPROB_BOUNDS["float16"] * 2


def test_every_changed_token_of_the_damaged_store_is_caught_and_nothing_harmless() -> None:
    changed = harmless = 0
    for probe in judged("power")["targets"][0]["probes"]:
        fault = probe["probe"].partition(":")[0]
        if any(answer["equal_control"] is False for answer in probe["answers"]):
            changed += 1
            assert probe["verdict"] == "fail"
        if fault in ("unchanged", "shifted") or fault.startswith("clean"):
            harmless += 1
            assert probe["verdict"] == "pass"
    assert (changed, harmless) == (18, 17)
