# SPDX-License-Identifier: Apache-2.0
"""Each target of the CPU contract once, and the control alone, on real engines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Start

pytestmark = pytest.mark.engines


def test_recomputing_lmcache_never_passes_while_native_caching_does(
    start: Start, tmp_path: Path
) -> None:
    """Inside the engine LMCache can't store KV of a CPU: it degrades, and answers rightly."""
    settings = tmp_path / "lmcache.yaml"
    settings.write_text("chunk_size: 64\nlocal_cpu: true\nmax_local_cpu_size: 1\n")
    run = start(
        *("--evidence-contract", "cpu", "--kv-connector", "LMCacheConnectorV1"),
        *("--lmcache-config", str(settings), "--compare-native"),
    )
    status, output = run.ended()
    assert status == 2, output
    report = run.stored()
    assert report is not None
    assert (report["verdict"], report["exit_status"]) == ("INCONCLUSIVE", 2)
    assert report["contract"]["name"] == "cpu"

    lmcache, native = report["targets"]
    assert lmcache["target"] == "lmcache"
    assert lmcache["verdict"] == "inconclusive"
    assert not [probe for probe in lmcache["probes"] if probe["verdict"] == "pass"]
    assert any("degraded mode" in item["reason"] for item in lmcache["disqualified"])
    disqualified = [r for r in report["reasons"] if r["code"] == "target.disqualified"]
    assert any("degraded mode" in reason["text"] for reason in disqualified)
    assert {reason["target"] for reason in report["reasons"]} == {"lmcache"}

    assert (native["target"], native["verdict"]) == ("native", "pass")
    answers = [answer for probe in native["probes"] for answer in probe["answers"]]
    reusing = [answer for answer in answers if answer["kind"] == "reuse"]
    assert len(reusing) == 12
    assert all(answer["cached_tokens"] > 0 for answer in reusing)
    assert all(answer["equal_control"] is True for answer in answers)

    checked = run.check()
    assert checked.returncode == 2, checked.stdout + checked.stderr
    assert "degraded mode" in checked.stdout
    run.leaves_nothing()


def test_control_alone_tests_no_reuse_and_needs_no_compiler(start: Start, tmp_path: Path) -> None:
    """The doctor asks for none. What vLLM's CPU build does call is lscpu."""
    programs = tmp_path / "bin"
    programs.mkdir()
    lscpu = shutil.which("lscpu")
    assert lscpu is not None
    (programs / "lscpu").symlink_to(lscpu)
    variables = {"PATH": str(programs), "CC": "", "CXX": ""}
    run = start(
        *("--evidence-contract", "cpu", "--kv-connector", "none", "--chunk-size", "64"),
        "--no-native-prefix-caching",
        **variables,
    )
    status, output = run.ended()
    assert status == 0, output
    report = run.stored()
    assert report is not None
    assert report["verdict"] == "control_only_pass"
    assert report["reuse_tested"] is False
    assert report["claim_eligible"] is False
    assert report["targets"] == []
    history = (run.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [event for event in map(json.loads, history) if event["event"] == "answer"]
    assert answers
    # Log-probabilities are what vLLM's CPU build would compile.
    assert all(len(answer["top2"]) == len(answer["token_ids"]) == 4 for answer in answers)
    checked = run.check()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    run.leaves_nothing()
