# SPDX-License-Identifier: Apache-2.0
"""The verifier as a user types it, for real: configure, make, and what is there afterwards.

The CPU profile: an LMCache server and vLLM's own prefix caching against one
cache-disabled control. `scripts/check.py` hands over a fresh copy of the checkout.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvseal import store
from kvseal.process import leftovers
from kvseal.records.schemas import validate

if TYPE_CHECKING:
    from conftest import Command


@pytest.fixture(scope="module")
def results(checkout: Path) -> Path:
    return checkout / "results" / "kv-reuse"


@pytest.fixture(scope="module")
def first(make: Command, results: Path) -> dict:
    """`make defconfig-kv-reuse-cpu && make`, once; its result.json."""
    configured = make("defconfig-kv-reuse-cpu")
    assert configured.returncode == 0, configured.stdout + configured.stderr
    started = time.monotonic()
    done = make()
    print(done.stdout[-6000:], done.stderr[-3000:])
    print(f"make: {time.monotonic() - started:.0f} s")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return json.loads((results / "results.json").read_text(encoding="utf-8"))


def test_passes_with_hits_in_every_reusing_answer(first: dict) -> None:
    assert (first["verdict"], first["exit_status"]) == ("PASS", 0), first["reasons"]
    assert first["reuse_tested"] is True
    assert first["claim_eligible"] is False
    assert {target["target"] for target in first["targets"]} == {"mp", "native"}
    for target in first["targets"]:
        assert target["verdict"] == "pass"
        answers = [answer for probe in target["probes"] for answer in probe["answers"]]
        reusing = [answer for answer in answers if answer["kind"] == "reuse"]
        # Three prompts, each reused once and three times.
        assert len(reusing) == 12
        assert all(answer["cached_tokens"] > 0 for answer in reusing)
        assert all(answer["equal_control"] is True for answer in answers)


def test_result_follows_its_published_schema(first: dict) -> None:
    validate(first, "efim.kv-reuse-verification.v1")
    planned, completed = first["generations"]["planned"], first["generations"]["completed"]
    assert planned == completed
    assert planned["total"] == 42


def test_packages_are_as_published(first: dict) -> None:
    assert first["contract"]["deviations"] == []


def test_run_folder_came_back_whole(first: dict, results: Path) -> None:
    files = store.verify_manifest(results / "latest")
    assert not files.missing, files.lines()
    assert not files.changed, files.lines()
    for name in ("report.html", "report.md", "report.json", "environment.json", "manifest.json"):
        assert (results / "latest" / name).stat().st_size > 0
    for name in ("control.log", "mp.log", "native.log", "lmcache-server.log"):
        assert (results / "logs" / name).stat().st_size > 0


def test_nothing_is_left_running(first: dict, results: Path) -> None:
    left = leftovers((results / "latest").resolve().name)
    assert not left, left.lines()


def test_check_comes_to_the_same_verdict(first: dict, results: Path, kvseal: Command) -> None:
    done = kvseal("check", results / "latest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    again = kvseal("check", "--json", results / "latest")
    assert json.loads(again.stdout) == first


def test_make_again_does_nothing(first: dict, results: Path, make: Command) -> None:
    before = sorted(path.name for path in (results / "runs").iterdir())
    done = make()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "up to date" in done.stdout
    assert sorted(path.name for path in (results / "runs").iterdir()) == before


def test_building_again_changes_nothing(first: dict, make: Command) -> None:
    done = make("kv-reuse-build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout
