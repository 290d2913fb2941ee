# SPDX-License-Identifier: Apache-2.0
"""A run's progress, its folder's way back, and what each way to end means for the play."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

RUN = ("--tags", "run,report")


def wait_for(play: subprocess.Popen[str], text: str) -> None:
    """Read the play's output until `text`; the play is killed when it does not come."""
    assert play.stdout is not None
    for line in play.stdout:
        print(line, end="")
        if text in line:
            return
    raise AssertionError(f"the play ended without {text!r}")


def left_running(node: Node, seconds: float) -> list[str]:
    """Return the command lines of this node's processes that are there after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        command = ["ps", "-ww", "-eo", "args"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        left = [line for line in found.splitlines() if f"{node.work}/" in line]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def test_folder_comes_back_whole(built: Node) -> None:
    played = built.play(*RUN)
    assert played.status == 0
    lines = [line.strip() for line in played.output.splitlines()]
    assert lines.index("first line of progress") < lines.index("last line of progress äöü")
    assert "summary of the report" in lines

    (run,) = (built.results / "runs").iterdir()
    assert run.name[-8:] == played_digest(built)[:8]
    assert (built.results / "latest").resolve() == run
    assert (built.results / "results.json").resolve() == run / "result.json"
    assert (built.results / "logs").resolve() == run / "logs"
    assert (run / "logs" / "a name with spaces.log").read_bytes() == bytes(range(256)) * 100
    assert (run / "spec.json").read_bytes() == built.spec_file.read_bytes()
    assert (run / "report.md").is_file()
    assert built.runs_on_node() == []
    assert not (built.results / ".incoming").exists()


def played_digest(node: Node) -> str:
    from kvseal.spec.runspec import RunSpec

    return RunSpec.load(node.spec_file).sha256()


@pytest.mark.parametrize(
    ("status", "message"),
    [("1", "a check of the run failed"), ("2", "the run supports no verdict")],
)
def test_failed_run_is_reported_and_fails_the_play(built: Node, status: str, message: str) -> None:
    played = built.play(*RUN, COMPARE=status)
    assert played.status == 2
    assert message in played.output
    assert f"exit status: {status}" in played.output
    assert (built.results / "latest" / "report.md").is_file()


def test_killed_driver_leaves_its_folder(built: Node) -> None:
    played = built.play(*RUN, COMPARE="kill")
    assert played.status == 2
    assert "the run left no result: its driver ended with exit status 137" in played.output
    assert (built.results / "latest" / "spec.json").is_file()
    assert not (built.results / "results.json").exists()  # nor that of an older run
    assert built.runs_on_node() == []


def test_altered_file_is_refused_and_stays_on_the_node(built: Node) -> None:
    played = built.play(*RUN, COMPARE="truncate")
    assert played.status == 2
    assert "result.json: FAILED" in played.output
    assert not (built.results / "latest").exists()
    assert len(built.runs_on_node()) == 1


def test_run_only_where_the_spec_says_so(built: Node) -> None:
    built.spec["run"] = False
    assert built.play().status == 0
    assert not built.results.exists()
    assert built.play("--tags", "run").status == 0  # asked for by name
    assert (built.results / "results.json").is_file()


def test_interrupted_run_is_stopped_and_brought_back_later(built: Node) -> None:
    play = built.start(*RUN, COMPARE="wait")
    wait_for(play, "first line of progress")
    os.killpg(play.pid, signal.SIGINT)
    play.communicate(timeout=60)
    assert play.returncode == 99  # Ansible's own status for Ctrl-C
    assert left_running(built, 1) == []
    (run,) = built.runs_on_node()

    assert built.play("--tags", "bring_back").status == 0
    assert (built.results / "latest").resolve().name == run
    assert (built.results / "latest" / "files.json").is_file()


def test_killed_controller_stops_the_run(built: Node) -> None:
    play = built.start(*RUN, COMPARE="wait")
    wait_for(play, "first line of progress")
    os.kill(play.pid, signal.SIGKILL)
    play.communicate(timeout=60)
    assert left_running(built, 90) == []


def test_second_run_is_refused_while_one_goes_on(built: Node) -> None:
    play = built.start(*RUN, COMPARE="wait")
    try:
        wait_for(play, "first line of progress")
        second = built.play("--tags", "run")
        assert second.status == 2
        assert "another command writes" in second.output
        taking = built.play("--tags", "bring_back")
        assert taking.status == 2
        assert "a run is going on" in taking.output
        assert len(built.runs_on_node()) == 1
    finally:
        os.killpg(play.pid, signal.SIGINT)
        play.communicate(timeout=60)
