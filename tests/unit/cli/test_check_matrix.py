# SPDX-License-Identifier: Apache-2.0
"""`kvseal check` and `kvseal report` of matrix runs: verdict, files, and what is refused."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.cli import main

UNIT = Path(__file__).parents[1]
build = SimpleNamespace(**runpy.run_path(str(UNIT / "checkers" / "matrix" / "builder.py")))
compare = SimpleNamespace(**runpy.run_path(str(UNIT / "records" / "builder.py")))
SMALL = {"backends": ["process"], "mixed_requests": 0}
ALL = ["report.html", "report.json", "report.md"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder: Path = build.run_folder(tmp_path / "run", **SMALL)
    return folder


def reports(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("report.*"))


def test_a_passing_run_passes_and_nothing_is_written(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in run.rglob("*"))
    assert main(["check", str(run)]) == 0
    assert capsys.readouterr().out.startswith("PASS  run\nEvery request got the KV")
    assert sorted(path.name for path in run.rglob("*")) == before


def test_json_holds_verdict_reasons_and_result(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["verdict"], document["reasons"]) == ("run", "PASS", [])
    assert document["result"] == json.loads((run / "result.json").read_text())


def test_a_broken_off_run_ends_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = build.passing_events(build.matrix_spec(**SMALL))[:60]
    folder = build.run_folder(tmp_path / "run", events, **SMALL)
    assert main(["check", str(folder)]) == 2
    assert "run.not_finished" in capsys.readouterr().out


def test_unlisted_files_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "note.txt").write_text("x")
    assert main(["check", str(run)]) == 0
    assert "does not list it: note.txt" in capsys.readouterr().out


def test_a_matrix_is_no_fixture(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(run), "--write-fixture", str(tmp_path / "f.json")]) == 2
    assert "--write-fixture" in capsys.readouterr().err


def test_reports_go_into_the_run_folder_and_it_still_checks(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run)]) == 0
    assert reports(run) == ALL
    out = capsys.readouterr().out
    assert out.startswith("PASS  run\n")
    assert out.endswith(f"report: {run}\n")
    first = [(run / name).read_bytes() for name in ALL]
    assert main(["report", str(run)]) == 0
    assert [(run / name).read_bytes() for name in ALL] == first
    assert main(["check", str(run)]) == 0


def test_several_runs_make_one_report(run: Path, tmp_path: Path) -> None:
    other = build.run_folder(tmp_path / "other", **SMALL)
    out = tmp_path / "o"
    assert main(["report", str(run), str(other), "--out", str(out)]) == 0
    document = json.loads((out / "report.json").read_text())
    assert [entry["run"] for entry in document["runs"]] == ["run", "other"]
    assert (out / "report.html").read_text().count("<h1>") == 2


def test_kinds_are_not_mixed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = compare.run_folder(tmp_path / "compared")
    assert main(["report", str(other), str(run), "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert "no report in common" in error
    assert f"report these alone: {run}" in error
    assert not (tmp_path / "o").exists()


def test_a_damaged_run_gets_no_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "history.jsonl").write_bytes(b"")
    assert main(["report", str(run)]) == 2
    assert "changed: history.jsonl" in capsys.readouterr().err
    assert reports(run) == []


def test_no_path_of_this_machine_gets_into_a_report(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run)]) == 0
    for name in ALL:
        assert str(tmp_path) not in (run / name).read_text()
