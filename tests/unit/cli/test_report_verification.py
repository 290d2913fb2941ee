# SPDX-License-Identifier: Apache-2.0
"""`kvseal report` of verifications: which files are written where, and what is refused."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.cli import main
from kvseal.records.places import Places

UNIT = Path(__file__).parents[1]
build = SimpleNamespace(**runpy.run_path(str(UNIT / "checkers" / "verification" / "builder.py")))
compare = SimpleNamespace(**runpy.run_path(str(UNIT / "records" / "builder.py")))
ALL = ["report.html", "report.json", "report.md"]


@pytest.fixture
def beside(tmp_path):
    return build.keep(Places(tmp_path / "r.json", tmp_path / "r.evidence"), build.passing_events())


@pytest.fixture
def within(tmp_path):
    places = Places(tmp_path / "run" / "result.json", tmp_path / "run")
    return build.keep(places, build.passing_events(targets=["native"]))


def reports(folder):
    return sorted(path.name for path in folder.glob("report.*"))


def test_reports_of_a_run_folder_go_into_it_and_it_still_checks(within, capsys):
    assert main(["report", str(within.folder)]) == 0
    assert reports(within.folder) == ALL
    out = capsys.readouterr().out
    assert out.startswith("PASS  run\n")
    assert out.endswith(f"report: {within.folder}\n")
    assert main(["check", str(within.folder)]) == 0
    assert "note:" not in capsys.readouterr().out


def test_reports_of_a_report_go_into_its_evidence_folder_and_it_still_checks(beside, capsys):
    assert main(["report", str(beside.report)]) == 0
    assert reports(beside.folder) == ALL
    assert sorted(path.name for path in beside.report.parent.iterdir()) == ["r.evidence", "r.json"]
    assert capsys.readouterr().out.startswith("PASS  r.json\n")
    assert main(["check", str(beside.report)]) == 0
    assert "note:" not in capsys.readouterr().out


def test_the_json_of_one_is_the_report_itself(beside):
    assert main(["report", str(beside.report), "--format", "json"]) == 0
    written = json.loads((beside.folder / "report.json").read_text())
    assert written == json.loads(beside.report.read_text())
    assert reports(beside.folder) == ["report.json"]


def test_a_report_can_be_made_again(beside):
    assert main(["report", str(beside.report)]) == 0
    first = [(beside.folder / name).read_bytes() for name in ALL]
    assert main(["report", str(beside.report)]) == 0
    assert [(beside.folder / name).read_bytes() for name in ALL] == first


def test_another_folder_is_made(beside, tmp_path):
    out = tmp_path / "a" / "b"
    assert main(["report", str(beside.report), "--out", str(out)]) == 0
    assert (reports(out), reports(beside.folder)) == (ALL, [])


def test_several_make_one_report_in_the_order_given(beside, within, tmp_path, capsys):
    out = tmp_path / "o"
    assert main(["report", str(within.folder), str(beside.report), "--out", str(out)]) == 0
    written = json.loads((out / "report.json").read_text())
    assert written["schema"] == "kvseal.verification-reports.v1"
    assert [entry["run"] for entry in written["runs"]] == ["run", "r.json"]
    assert written["runs"][1]["report"] == json.loads(beside.report.read_text())
    assert written["runs"][1]["notes"] == []
    shown = capsys.readouterr().out
    assert shown.index("PASS  run") < shown.index("PASS  r.json")
    assert (out / "report.md").read_text().count("\n# PASS") == 1
    assert (out / "report.html").read_text().count("<h1>") == 2


def test_several_need_a_folder(beside, within, capsys):
    assert main(["report", str(beside.report), str(within.folder)]) == 2
    assert "--out" in capsys.readouterr().err


def test_kinds_are_not_mixed(beside, tmp_path, capsys):
    other = compare.run_folder(tmp_path / "compared")
    arguments = [str(other), str(beside.report), "--out", str(tmp_path / "o")]
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert "no report in common" in error
    assert f"report these alone: {beside.report}" in error
    assert not (tmp_path / "o").exists()


def test_a_damaged_verification_gets_no_report(beside, capsys):
    (beside.folder / "history.jsonl").write_bytes(b"")
    assert main(["report", str(beside.report)]) == 2
    assert "changed: history.jsonl" in capsys.readouterr().err
    assert reports(beside.folder) == []


def test_a_killed_run_is_reported_with_its_notes(tmp_path, capsys):
    places = Places(tmp_path / "r.json", tmp_path / "r.evidence")
    build.keep(places, build.passing_events()[:12], finished=False)
    assert main(["report", str(places.report)]) == 0
    assert capsys.readouterr().out.startswith("INCONCLUSIVE  r.json\n")
    for name in ("report.md", "report.html"):
        assert "the run was killed before its end" in (places.folder / name).read_text()


def test_no_path_of_this_machine_gets_into_a_report(beside, tmp_path):
    assert main(["report", str(beside.report)]) == 0
    for name in ALL:
        assert str(tmp_path) not in (beside.folder / name).read_text()
