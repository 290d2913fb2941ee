# SPDX-License-Identifier: Apache-2.0
"""A run that is cut short says so, exits as documented, and leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal import store
from kvseal.process import leftovers
from kvseal.spec.runspec import RunSpec

pytestmark = pytest.mark.engines


def start(spec: RunSpec, tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    spec_file = tmp_path / "run-spec.json"
    spec_file.write_text(spec.dumps(), encoding="utf-8")
    folder = tmp_path / f"kvseal-{tmp_path.name}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "kvseal", "compare"),
            *("--spec", str(spec_file), "--out", str(folder)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return process, folder


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the run did not get there in time"
        time.sleep(0.2)


def history(folder: Path) -> list[str]:
    file = folder / "history.jsonl"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def processes_of(folder: Path, name: str) -> list[int]:
    """The PIDs of this run's processes whose command line holds `name`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            output = str((entry / "fd" / "1").readlink())
        except OSError:
            continue
        if name in command and output.startswith(str(folder)):
            found.append(int(entry.name))
    return found


def check_what_is_left(folder: Path, reason: str) -> None:
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert result["verdict"] == "INCONCLUSIVE"
    assert reason in {entry["code"] for entry in result["reasons"]}
    assert store.verify_manifest(folder)
    left = leftovers(folder.name)
    assert not left, left.lines()


def test_ctrl_c_while_the_engines_start(spec: RunSpec, tmp_path: Path) -> None:
    process, folder = start(spec, tmp_path)
    wait_for(lambda: bool(processes_of(folder, "vllm")), process, 180)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    check_what_is_left(folder, "run.interrupted")


@pytest.mark.parametrize(
    ("victim", "named"), [("VLLM::Worker", "vLLM"), ("lmcache.cli.main", "LMCache")]
)
def test_an_engine_killed_in_mid_run(
    spec: RunSpec, tmp_path: Path, victim: str, named: str
) -> None:
    process, folder = start(spec, tmp_path)
    wait_for(lambda: any('"event": "answer"' in line for line in history(folder)), process, 400)
    victims = processes_of(folder, victim)
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2, output
    assert named in output
    check_what_is_left(folder, "run.error")


def test_a_run_folder_that_exists_is_refused(spec: RunSpec, tmp_path: Path) -> None:
    (tmp_path / f"kvseal-{tmp_path.name}").mkdir()
    process, folder = start(spec, tmp_path)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert str(folder) in output
    assert list(folder.iterdir()) == []
