# SPDX-License-Identifier: Apache-2.0
"""What a newcomer types first, for real: configure, make, and what is there afterwards.

`scripts/check.py` hands over a fresh copy of the checkout. The first test runs
the whole comparison; the others look at what it left and what repeating does.
"""

from __future__ import annotations

import json
import subprocess
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
    return checkout / "results" / "lmcache-snapkv"


@pytest.fixture(scope="module")
def first(make: Command, results: Path) -> dict:
    """`make defconfig-lmcache-snapkv-cpu && make`, once; its result.json."""
    configured = make("defconfig-lmcache-snapkv-cpu")
    assert configured.returncode == 0, configured.stdout + configured.stderr
    started = time.monotonic()
    done = make()
    print(done.stdout[-6000:], done.stderr[-3000:])
    print(f"make: {time.monotonic() - started:.0f} s")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return json.loads((results / "results.json").read_text(encoding="utf-8"))


def test_passes_with_every_answer_proven(first: dict) -> None:
    assert first["verdict"] == "PASS", first["reasons"]
    assert first["num_prompts"] >= 10
    assert min(first["prompt_tokens"]) >= 1000
    assert first["baseline"]["total"] == first["snapkv"]["total"] == first["num_prompts"]


def test_result_follows_its_published_schema_and_keeps_knlp_names(
    first: dict, results: Path
) -> None:
    validate(first, "compare-result.v1")
    assert first["schema_version"] == 1
    for arm in ("baseline", "snapkv"):
        assert {"correct", "total", "output_tput"} <= set(first[arm])
    for name in ("lmcache.log", "vllm.log"):
        assert (results / "logs" / name).stat().st_size > 0


def test_compacted_answers_differ_from_nothing_the_witness_says(first: dict, results: Path) -> None:
    history = (results / "latest" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in history]
    references = [event for event in events if event["event"] == "reference"]
    answers = {
        event["index"]: event["output_token_ids"]
        for event in events
        if event["event"] == "answer" and event["arm"] == "snapkv"
    }
    assert len(references) == first["num_prompts"]
    for event in references:
        assert event["output_token_ids"] == answers[event["index"]]


def test_run_folder_came_back_whole(first: dict, results: Path) -> None:
    report = store.verify_manifest(results / "latest")
    assert not report.missing, report.lines()
    assert not report.changed, report.lines()
    for name in ("report.html", "report.md", "patches.diff", "environment.json"):
        assert (results / "latest" / name).stat().st_size > 0


def test_nothing_is_left_running(first: dict, results: Path) -> None:
    run_id = (results / "latest").resolve().name
    assert not leftovers(run_id)


def test_make_again_does_nothing_and_is_quick(first: dict, results: Path, make: Command) -> None:
    before = sorted(path.name for path in (results / "runs").iterdir())
    started = time.monotonic()
    done = make()
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (results / "runs").iterdir()) == before
    print(f"make again: {seconds:.1f} s")


def test_building_again_changes_nothing(first: dict, make: Command) -> None:
    done = make("lmcache-snapkv-build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout


def test_check_comes_to_the_same_verdict_from_files_alone(
    first: dict, results: Path, kvseal: Command, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    subprocess.run(["cp", "-r", str((results / "latest").resolve()), str(copied)], check=True)
    done = kvseal("check", copied)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


def test_a_changed_answer_is_found(
    first: dict, results: Path, kvseal: Command, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    subprocess.run(["cp", "-r", str((results / "latest").resolve()), str(copied)], check=True)
    result = json.loads((copied / "result.json").read_text(encoding="utf-8"))
    result["snapkv"]["correct"] += 1
    (copied / "result.json").write_text(json.dumps(result), encoding="utf-8")
    done = kvseal("check", copied)
    assert done.returncode in (1, 2), done.stdout + done.stderr


def test_nvidia_profile_without_a_gpu_names_the_cpu_profile(
    first: dict, make: Command, checkout: Path
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA GPU: the refusal can't be seen here")
    saved = {name: (checkout / name).read_bytes() for name in (".config", "run-spec.json")}
    try:
        assert make("defconfig-lmcache-snapkv").returncode == 0
        done = make("lmcache-snapkv-doctor")
        assert done.returncode == 2
        text = done.stdout + done.stderr
        assert "FAIL" in text
        assert "make defconfig-lmcache-snapkv-cpu" in text
    finally:
        assert make("defconfig-lmcache-snapkv-cpu").returncode == 0
        for name, data in saved.items():
            (checkout / name).write_bytes(data)
