# SPDX-License-Identifier: Apache-2.0
"""`kvseal report`: which files are written where, and what is refused."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.cli import main

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))


@pytest.fixture
def run(tmp_path):
    return build.run_folder(tmp_path / "run")


def reports(folder):
    return sorted(path.name for path in folder.glob("report.*"))


def test_all_formats_go_into_the_run_folder_and_the_run_still_checks(run, capsys):
    assert main(["report", str(run)]) == 0
    assert reports(run) == ["report.html", "report.json", "report.md"]
    assert "PASS  run" in capsys.readouterr().out
    assert main(["check", str(run)]) == 0


def test_a_report_can_be_made_again(run):
    assert main(["report", str(run)]) == 0
    first = (run / "report.html").read_bytes()
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_bytes() == first


def test_one_format_elsewhere(run, tmp_path):
    assert main(["report", str(run), "--format", "json", "--out", str(tmp_path / "o")]) == 0
    assert reports(tmp_path / "o") == ["report.json"]
    assert reports(run) == []


def test_several_runs_make_one_report(run, tmp_path):
    other = build.run_folder(tmp_path / "other", build.passing_events(build.make_spec())[:5])
    assert main(["report", str(run), str(other), "--out", str(tmp_path / "o")]) == 0
    document = json.loads((tmp_path / "o" / "report.json").read_text())
    assert [entry["run"] for entry in document["runs"]] == ["run", "other"]
    assert [entry["result"]["verdict"] for entry in document["runs"]] == ["PASS", "INCONCLUSIVE"]


def test_several_runs_need_a_folder(run, capsys):
    assert main(["report", str(run), str(run)]) == 2
    assert "--out" in capsys.readouterr().err


def test_an_unknown_format_is_refused_before_anything_is_written(run, capsys):
    assert main(["report", str(run), "--format", "json,pdf"]) == 2
    assert "--format = 'pdf'" in capsys.readouterr().err
    assert reports(run) == []


def test_an_output_folder_that_is_a_file_is_refused(run, tmp_path, capsys):
    (tmp_path / "o").write_text("x")
    assert main(["report", str(run), "--out", str(tmp_path / "o")]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_damaged_run_gets_no_report(run, capsys):
    (run / "history.jsonl").write_bytes(b"")
    assert main(["report", str(run)]) == 2
    assert "changed: history.jsonl" in capsys.readouterr().err
    assert reports(run) == []
