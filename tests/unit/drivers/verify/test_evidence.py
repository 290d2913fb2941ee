# SPDX-License-Identifier: Apache-2.0
"""Where evidence may go, and what an end of any kind leaves there."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kvseal.drivers.verify import evidence
from kvseal.drivers.verify.evidence import beside, recorded, within
from kvseal.errors import EngineError, EvidenceError, OptionError
from kvseal.process import Interrupted
from kvseal.process.leftovers import RUN_VARIABLE
from kvseal.records import verification
from kvseal.records.history import read_history
from kvseal.records.places import Places


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return beside(tmp_path / "report.json")


def names(places: Places) -> list[str]:
    return [event.name for event in read_history(places.history, verification.TABLE).events]


@pytest.mark.parametrize(
    ("report", "folder"),
    [("report.json", "report.evidence"), ("a.b.json", "a.b.evidence"), ("plain", "plain.evidence")],
)
def test_the_evidence_folder_is_beside_the_report(tmp_path: Path, report: str, folder: str) -> None:
    found = beside(tmp_path / report)
    assert found == Places(tmp_path / report, tmp_path / folder)
    assert list(tmp_path.iterdir()) == [], "only looked at"


def test_a_run_folder_holds_both(tmp_path: Path) -> None:
    assert within(tmp_path) == Places(tmp_path / "result.json", tmp_path)


def refused(report: Path) -> OptionError:
    with pytest.raises(OptionError) as caught:
        beside(report)
    assert caught.value.option == "--report"
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("existing", ["report.json", "report.evidence"])
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_is_there_is_not_touched(tmp_path: Path, existing: str, kind: str) -> None:
    path = tmp_path / existing
    if kind == "file":
        path.write_text("mine", encoding="utf-8")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    found = refused(tmp_path / "report.json")
    assert found.value == str(path)
    assert "never written over" in found.message
    assert list(tmp_path.iterdir()) == [path]


def test_report_and_folder_would_be_one(tmp_path: Path) -> None:
    assert "would be one" in refused(tmp_path / "a.evidence").message


def test_no_folder_for_the_report(tmp_path: Path) -> None:
    found = refused(tmp_path / "missing" / "report.json")
    assert "does not exist" in found.message
    assert found.remedy == f"mkdir -p {tmp_path / 'missing'}"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("may_write", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_that_can_t_be_written_to(
    tmp_path: Path, may_write: bool, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, but not where the file system is read-only."""
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(mode) or may_write)
    flags = os.ST_RDONLY if read_only else 0
    monkeypatch.setattr(os, "statvfs", lambda path: mock.Mock(f_flag=flags | os.ST_NOSUID))
    if may_write and not read_only:
        assert beside(tmp_path / "report.json").report == tmp_path / "report.json"
    else:
        assert "can't be written to" in refused(tmp_path / "report.json").message
    assert asked == [os.W_OK | os.X_OK]


def test_a_whole_run(places: Places) -> None:
    with recorded(places, "kvsealabc") as found:
        assert os.environ[RUN_VARIABLE] == "kvsealabc"
        assert found.run_id == "kvsealabc"
        assert places.logs.is_dir()
        report = found.refresh()
        assert json.loads(places.report.read_text(encoding="utf-8")) == report
        assert report["verdict"] == "INCONCLUSIVE"
        assert report["complete"] is False
    assert names(places) == ["verification_finished"]
    assert found.refresh()["complete"] is True


@pytest.mark.parametrize(
    ("raised", "event", "fields"),
    [
        (Interrupted(2), "interrupted", {"signal": "SIGINT"}),
        (Interrupted(15), "interrupted", {"signal": "SIGTERM"}),
        (
            EngineError("gone", remedy="again"),
            "error",
            {"target": None, "where": "EngineError", "message": "gone\n  remedy:   again"},
        ),
        (
            KeyError("ours"),
            "error",
            {"target": None, "where": "KeyError", "message": "KeyError('ours')"},
        ),
    ],
)
def test_an_end_by_error_or_signal_is_recorded_and_goes_on(
    places: Places, raised: BaseException, event: str, fields: dict[str, object]
) -> None:
    with pytest.raises(type(raised)) as caught, recorded(places, "r"):
        raise raised
    assert caught.value is raised
    (found,) = read_history(places.history, verification.TABLE).events
    assert found.name == event
    assert dict(found.fields) == fields


def test_an_exit_is_not_a_finish(places: Places) -> None:
    with pytest.raises(SystemExit), recorded(places, "r"):
        raise SystemExit(3)
    assert names(places) == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_folder_that_came_in_between_is_left_alone(places: Places, kind: str) -> None:
    if kind == "folder":
        places.folder.mkdir()
        (places.folder / "mine").touch()
    else:
        places.folder.touch()
    with pytest.raises(EvidenceError, match="never written over"), recorded(places, "r"):
        pytest.fail("entered")
    if kind == "folder":
        assert [path.name for path in places.folder.iterdir()] == ["mine"]
    assert not places.report.exists()


def test_a_report_is_replaced_in_one_step(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(places, "r") as found:
        before = found.refresh()
        inode = places.report.stat().st_ino

        def no_room(descriptor: int) -> None:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patched:
            patched.setattr(evidence.store.os, "fsync", no_room)
            with pytest.raises(evidence.KvsealError, match="can't be written"):
                found.refresh()
        assert json.loads(places.report.read_text(encoding="utf-8")) == before
        assert places.report.stat().st_ino == inode
        found.refresh()
        assert places.report.stat().st_ino != inode
    assert [path.name for path in places.report.parent.iterdir() if "part" in path.name] == []
