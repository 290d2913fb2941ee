# SPDX-License-Identifier: Apache-2.0
"""A run folder says itself how its run ended, also when that was early."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal import store
from kvseal.cli.execution import execute
from kvseal.drivers.recording import Recording
from kvseal.errors import EngineError, EvidenceError
from kvseal.process import Interrupted
from kvseal.records import matrix, matrix_builders
from kvseal.records.history import read_history

HOST: Any = SimpleNamespace(to_json=lambda: {"system": "Linux"})


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A spec of which only the digest and text matter here."""
    monkeypatch.setattr("kvseal.cli.execution.gather", lambda _: HOST)
    return SimpleNamespace(dumps=lambda: "{}\n", sha256=lambda: "0" * 64)


def judge(folder: Path) -> tuple[int, dict[str, Any]]:
    """Stand in for a checker: the names of the events so far."""
    names = [event.name for event in read_history(folder / "history.jsonl").events]
    return (0 if names[-1] == "run_finished" else 2), {"events": names}


def result(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "result.json").read_text())["events"]
    return found


def test_a_whole_run_ends_with_its_last_event(spec: Any, tmp_path: Path) -> None:
    seen = []

    def driver(_: Any, recording: Recording, host: Any) -> None:
        # Killed here, the run would already have a result that says so.
        seen.append(result(recording.folder))

    status, document = execute(spec, tmp_path / "run", "compare", driver, judge)
    assert status == 0
    assert seen == [["run_started"]]
    assert document["events"] == ["run_started", "run_finished"] == result(tmp_path / "run")
    assert store.verify_manifest(tmp_path / "run")


@pytest.mark.parametrize(
    ("raised", "event"),
    [
        (EngineError("gone"), "error"),
        (Interrupted(signal.SIGTERM), "interrupted"),
        (ValueError("a defect"), "error"),
    ],
)
def test_what_ends_a_run_early_is_recorded_and_raised(
    spec: Any, tmp_path: Path, raised: BaseException, event: str
) -> None:
    def driver(*_: object) -> None:
        raise raised

    with pytest.raises(type(raised)):
        execute(spec, tmp_path / "run", "compare", driver, judge)
    assert result(tmp_path / "run") == ["run_started", event]
    assert store.verify_manifest(tmp_path / "run")


def test_a_folder_that_exists_is_refused_and_not_touched(spec: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text("mine")
    with pytest.raises(EvidenceError, match="exists already"):
        execute(spec, folder, "compare", lambda *_: None, judge)
    assert [path.name for path in folder.iterdir()] == ["result.json"]
    assert (folder / "result.json").read_text() == "mine"


def test_a_history_of_another_table_is_held_to_that_one(spec: Any, tmp_path: Path) -> None:
    def driver(_: Any, recording: Recording, host: Any) -> None:
        recording.history.append(matrix_builders.restarted(backend="mp", what="both"))

    def of_matrix(folder: Path) -> tuple[int, dict[str, Any]]:
        events = read_history(folder / "history.jsonl", matrix.TABLE).events
        return 0, {"events": [event.name for event in events]}

    _, document = execute(spec, tmp_path / "run", "matrix", driver, of_matrix, table=matrix.TABLE)
    assert document["events"] == ["run_started", "restarted", "run_finished"]
    with pytest.raises(EvidenceError, match="driver"):
        execute(spec, tmp_path / "other", "matrix", driver, judge)
