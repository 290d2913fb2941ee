# SPDX-License-Identifier: Apache-2.0
"""A run from its first line to its last, and what is on disk when it does not get there."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kvseal
from kvseal import store
from kvseal.errors import EngineError, EvidenceError, PrerequisiteError
from kvseal.process import Interrupted
from kvseal.records.places import Places
from kvseal.workload.probes import Probe


def on_disk(stage: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(stage.places.report.read_text(encoding="utf-8"))
    return report


def test_what_a_run_starts_from(stage: Any) -> None:
    prepared = stage.lmcache(seed=4)
    stage.verify(prepared)
    folder = stage.places.folder
    events = stage.events()
    assert [event.name for event in events[:3]] == [
        "verification_started",
        "manifest",
        "environment",
    ]
    started, manifest, environment = events[:3]
    assert started["kvseal_version"] == kvseal.__version__
    assert started["request"]["evidence_directory"] == str(folder)
    assert started["request"]["targets"] == ["lmcache"]
    assert started["request"]["seed"] == 4
    assert started["contract"]["name"] == "cpu"
    assert started["contract"]["deviations"] == []
    assert started["host"]["cpu_model"]
    assert tuple(Probe.from_json(entry) for entry in manifest["probes"]) == prepared.probes
    assert manifest["geometry"] == prepared.geometry.to_json()
    assert manifest["generations_planned"]["total"] == len(stage.asked)
    assert manifest["sampling"] == {
        "temperature": 0.0, "n": 1, "max_tokens": 4, "seed": 4, "ignore_eos": True,
    }  # fmt: skip
    assert environment["details"]["device"] == "cpu"
    for name, document in (
        ("manifest.json", prepared.manifest()),
        ("environment.json", dict(environment["details"])),
    ):
        assert json.loads((folder / name).read_text(encoding="utf-8")) == document
    assert (folder / "lmcache.yaml").read_text(encoding="utf-8") == "chunk_size: 64\n"


def test_a_run_without_lmcache_s_settings_has_no_file_of_them(stage: Any) -> None:
    stage.verify(stage.prepared())
    assert not (stage.places.folder / "lmcache.yaml").exists()
    assert not (stage.places.folder / "spec.json").exists()


def test_a_run_spec_is_there_before_anything_else(stage: Any) -> None:
    seen = []
    stage.on_start["control"] = lambda _: seen.append((stage.places.folder / "spec.json").exists())
    stage.verify(stage.prepared(), spec=SimpleNamespace(dumps=lambda: '{"a": 1}\n'))
    assert seen == [True]
    assert (stage.places.folder / "spec.json").read_text(encoding="utf-8") == '{"a": 1}\n'


def test_a_run_folder_holds_its_report(stage: Any) -> None:
    stage.places = Places(stage.folder / "run" / "result.json", stage.folder / "run")
    report = stage.verify(stage.prepared())
    assert on_disk(stage) == report
    assert store.verify_manifest(stage.places.folder)


def test_the_returned_report_is_the_one_on_disk_and_the_folder_is_whole(stage: Any) -> None:
    report = stage.verify(stage.prepared())
    assert on_disk(stage) == report
    assert report["complete"] is True
    assert store.verify_manifest(stage.places.folder)


def test_the_report_is_there_before_the_first_engine(stage: Any) -> None:
    seen = []
    stage.on_start["control"] = lambda _: seen.append(on_disk(stage)["verdict"])
    stage.verify(stage.prepared())
    assert seen == ["INCONCLUSIVE"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("answers", [1, 8, 20])
def test_a_signal_ends_it_with_a_valid_report(stage: Any, number: int, answers: int) -> None:
    def interrupt(*_: Any) -> None:
        if len(stage.asked) == answers:
            os.kill(os.getpid(), number)

    stage.on_ask = {"control": interrupt, "native": interrupt}
    prepared = stage.prepared()
    with pytest.raises(Interrupted):
        stage.verify(prepared)
    name = signal.Signals(number).name
    assert len(stage.asked) == answers
    assert stage.running == []
    events = stage.events()
    assert (events[-1].name, events[-1]["signal"]) == ("interrupted", name)
    assert events[-2].name == "target_finished"
    report = on_disk(stage)
    assert (report["verdict"], report["exit_status"]) == ("INCONCLUSIVE", 2)
    assert (report["interrupted"], report["complete"]) == (name, False)
    assert report["generations"]["completed"]["total"] == answers - 1
    assert store.verify_manifest(stage.places.folder)


def test_a_signal_does_not_hide_a_failure(stage: Any) -> None:
    from kvseal.engines.offline.protocol import Answer

    def differ(engine: Any, question: Any, answer: Any) -> Any:
        if len(stage.questions("native")) == 12:
            os.kill(os.getpid(), signal.SIGINT)
        if not answer.cached_tokens:
            return None
        return Answer(**{**vars(answer), "token_ids": [9999, *answer.token_ids[1:]]})

    stage.on_ask["native"] = differ
    with pytest.raises(Interrupted):
        stage.verify(stage.prepared())
    assert (on_disk(stage)["verdict"], on_disk(stage)["exit_status"]) == ("FAIL", 1)


@pytest.mark.parametrize("raised", [EngineError("gone"), ZeroDivisionError("ours")])
def test_an_error_is_in_the_report(stage: Any, raised: Exception) -> None:
    def fail(*_: Any) -> None:
        raise raised

    stage.on_ask["control"] = fail
    with pytest.raises(type(raised)):
        stage.verify(stage.prepared())
    report = on_disk(stage)
    assert (report["verdict"], report["exit_status"], report["complete"]) == (
        "INCONCLUSIVE",
        2,
        False,
    )
    assert report["errors"][-1]["where"] == type(raised).__name__
    assert store.verify_manifest(stage.places.folder)


@pytest.mark.parametrize("lines", [0, 2, 5, 12, 30])
def test_a_full_disk_leaves_valid_json(
    stage: Any, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History can't grow any more; the report still can be written, or stays as it was."""
    append = store.LineFile.append
    kept = []

    def full(self: store.LineFile, line: str) -> None:
        if len(kept) >= lines:
            with store.disk_errors(self.path):
                raise OSError(errno.ENOSPC, "full")
        append(self, line)
        kept.append(line)

    monkeypatch.setattr(store.LineFile, "append", full)
    with pytest.raises(PrerequisiteError, match="can't be written"):
        stage.verify(stage.prepared())
    assert len(stage.events()) == lines
    report = on_disk(stage)
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["complete"] is False
    assert stage.running == []


def test_a_report_that_finds_no_room_stays_the_former(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = store.write_bytes

    def full(path: Path, data: bytes) -> None:
        if path == stage.places.report and len(stage.asked) >= 3:
            with store.disk_errors(path):
                raise OSError(errno.ENOSPC, "full")
        written(path, data)

    monkeypatch.setattr(store, "write_bytes", full)
    with pytest.raises(PrerequisiteError, match="can't be written"):
        stage.verify(stage.prepared())
    assert on_disk(stage)["generations"]["completed"]["total"] == 2


@pytest.mark.parametrize("existing", ["folder", "file", "link"])
def test_a_folder_that_exists_is_refused_with_nothing_touched(stage: Any, existing: str) -> None:
    folder = stage.places.folder
    if existing == "folder":
        folder.mkdir()
        (folder / "history.jsonl").write_text("mine", encoding="utf-8")
    elif existing == "file":
        folder.write_text("mine", encoding="utf-8")
    else:
        folder.symlink_to(stage.folder / "elsewhere")
    before = sorted(stage.folder.rglob("*"))
    with pytest.raises(EvidenceError):
        stage.verify(stage.prepared())
    assert sorted(stage.folder.rglob("*")) == before
    assert stage.started == []
    if existing == "folder":
        assert (folder / "history.jsonl").read_text(encoding="utf-8") == "mine"


def test_signals_mean_again_what_they_meant(stage: Any) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stage.verify(stage.prepared())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
