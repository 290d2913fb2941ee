# SPDX-License-Identifier: Apache-2.0
"""A stored verification judged again: whole, damaged, and killed at any moment."""

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.verification.document import document
from kvseal.errors import EvidenceError, OptionError
from kvseal.records.history import read_history
from kvseal.records.places import Places
from kvseal.records.verification import TABLE
from kvseal.report.run_folder import REPORTS
from kvseal.report.verification_folder import is_verification, read_verification
from kvseal.store import write_json, write_manifest

CHECKERS = Path(__file__).parents[1] / "checkers" / "verification"
build = SimpleNamespace(**runpy.run_path(str(CHECKERS / "builder.py")))
EVENTS = build.passing_events()
COUNT = len(EVENTS)


def beside(folder):
    return Places(folder / "r.json", folder / "r.evidence")


def within(folder):
    return Places(folder / "run" / "result.json", folder / "run")


@pytest.fixture(params=[beside, within])
def whole(request, tmp_path):
    return build.keep(request.param(tmp_path), EVENTS)


def killed(folder, reported, written, torn=b""):
    """A run that was killed: the last report has `reported` events, the history `written`.

    `torn` is what was written of the line after them.
    """
    places = build.keep(beside(folder), EVENTS, finished=False)
    lines = places.history.read_bytes().splitlines(keepends=True)
    places.history.write_bytes(b"".join(lines[:reported]))
    write_json(places.report, document(read_history(places.history, TABLE)))
    places.history.write_bytes(b"".join(lines[:written]) + torn)
    return places


def change(path):
    path.write_bytes(path.read_bytes() + b" ")


def change_figure(places):
    stored = json.loads(places.report.read_text())
    stored["targets"][0]["probes"][0]["answers"][0]["cached_tokens"] = 16
    write_json(places.report, stored)


def test_a_whole_run_is_what_it_says(whole):
    found = read_verification(whole.report if whole.report.name == "r.json" else whole.folder)
    assert found.report == json.loads(whole.report.read_text())
    assert (found.report["verdict"], found.notes, found.places) == ("PASS", (), whole)


def test_nothing_is_written(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.report.parent.rglob("*")}
    read_verification(whole.folder)
    assert {path: path.stat().st_mtime_ns for path in whole.report.parent.rglob("*")} == before


def test_report_and_folder_of_a_report_are_the_same_run(tmp_path):
    places = build.keep(beside(tmp_path), EVENTS)
    assert is_verification(places.report)
    assert is_verification(places.folder)
    assert read_verification(places.folder) == read_verification(places.report)


@pytest.mark.parametrize("make", [beside, within])
def test_a_run_may_travel(tmp_path, make):
    build.keep(make(tmp_path / "here"), EVENTS)
    (tmp_path / "here").rename(tmp_path / "there")
    there = make(tmp_path / "there")
    assert read_verification(there.folder).notes == ()
    assert read_verification(there.folder).places == there


@pytest.mark.parametrize("name", ["history.jsonl", "logs/control.log"])
def test_a_changed_file_of_the_evidence_is_named(whole, name):
    change(whole.folder / name)
    with pytest.raises(EvidenceError, match=f"changed: {name}"):
        read_verification(whole.folder)


def test_a_missing_log_is_named(whole):
    (whole.folder / "logs" / "control.log").unlink()
    with pytest.raises(EvidenceError, match=r"missing: logs/control\.log"):
        read_verification(whole.folder)


def test_a_report_with_another_figure_is_refused(tmp_path):
    places = build.keep(beside(tmp_path), EVENTS)
    change_figure(places)
    with pytest.raises(EvidenceError, match="not what its own history gives") as caught:
        read_verification(places.report)
    assert "another version of kvseal" in str(caught.value)


def test_in_a_run_folder_the_digests_speak_first_and_fresh_ones_do_not_help(tmp_path):
    places = build.keep(within(tmp_path), EVENTS)
    change_figure(places)
    with pytest.raises(EvidenceError, match=r"changed: result\.json"):
        read_verification(places.folder)
    write_manifest(places.folder)
    with pytest.raises(EvidenceError, match="not what its own history gives"):
        read_verification(places.folder)


def test_a_history_made_better_by_hand_does_not_give_the_report(tmp_path):
    events = build.passing_events()
    build.give(build.answer_of(events, "lmcache", build.PAIR[0].id, "reuse", 1), 11, 7, 13, 14)
    places = build.keep(beside(tmp_path), events)
    text = places.history.read_text()
    assert "[11, 7, 13, 14]" in text
    places.history.write_text(text.replace("[11, 7, 13, 14]", "[11, 12, 13, 14]"))
    write_manifest(places.folder)
    with pytest.raises(EvidenceError, match="not what its own history gives"):
        read_verification(places.report)


def test_an_older_report_of_a_whole_run_is_refused(tmp_path):
    """Only a killed run's report may stop short: one with files.json had its last."""
    places = killed(tmp_path, COUNT - 3, COUNT)
    assert "the run was killed" in read_verification(places.report).notes[1]
    write_manifest(places.folder)
    with pytest.raises(EvidenceError, match="not what its own history gives"):
        read_verification(places.report)


@pytest.mark.parametrize(
    ("reported", "written"),
    [(0, 0), (0, 4), (3, 3), (3, 9), (9, 10), (12, 20), (20, COUNT - 1), (COUNT, COUNT)],
)
@pytest.mark.parametrize("torn", [b"", b'{"seq": 1'])
def test_a_killed_run_is_judged_by_all_of_its_history(tmp_path, reported, written, torn):
    places = killed(tmp_path, reported, written, torn)
    found = read_verification(places.report)
    notes = ["no files.json: the run was killed before its end"]
    if reported != written or torn:
        notes.append(f"the report stops at event {reported} of {written}: the run was killed")
    assert list(found.notes) == notes
    whole = written == COUNT and not torn
    assert found.report["verdict"] == ("PASS" if whole else "INCONCLUSIVE")
    assert found.report["complete"] is whole
    completed = sum(event["event"] == "answer" for event in EVENTS[:written])
    assert found.report["generations"]["completed"]["total"] == completed
    for target in found.report["targets"]:
        for probe in target["probes"]:
            assert probe["state"] != "incomplete" or probe["verdict"] != "pass"


def test_a_killed_run_s_report_must_still_be_one_of_its_own(tmp_path):
    places = killed(tmp_path, COUNT - 1, COUNT)
    change_figure(places)
    with pytest.raises(EvidenceError, match="not what its own history gives"):
        read_verification(places.report)


def test_a_report_beyond_its_history_is_refused(tmp_path):
    places = killed(tmp_path, COUNT, 9)
    with pytest.raises(EvidenceError, match="not what its own history gives"):
        read_verification(places.report)


def test_a_run_killed_before_its_first_report_is_known_by_its_history(tmp_path):
    places = killed(tmp_path, 0, 3)
    places.report.unlink()
    for path in (places.report, places.folder):
        assert is_verification(path)
        found = read_verification(path)
        assert f"there is no report at {places.report}" in found.notes
        assert found.report["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("gone", ["the folder", "the history"])
def test_a_report_alone_can_not_be_judged_again(tmp_path, gone):
    places = build.keep(beside(tmp_path), EVENTS)
    if gone == "the folder":
        shutil.rmtree(places.folder)
    else:
        places.history.unlink()
    assert is_verification(places.report)
    with pytest.raises(OptionError, match="without its evidence") as caught:
        read_verification(places.report)
    assert str(places.history) in str(caught.value)


def test_files_that_nobody_listed_are_noted_and_reports_are_not(whole):
    (whole.folder / "note.txt").write_text("x")
    for name in REPORTS:
        (whole.folder / name).write_text("x")
    assert read_verification(whole.folder).notes == ("not covered by files.json: note.txt",)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "1", '{"schema": "kvseal.compare-result.v1"}', "\xff"]
)
def test_what_is_no_verification(tmp_path, text):
    assert not is_verification(tmp_path)
    if text is not None:
        for name in ("result.json", "r.json"):
            (tmp_path / name).write_text(text, encoding="latin-1")
    assert not is_verification(tmp_path)
    assert not is_verification(tmp_path / "r.json")
    (tmp_path / "r.evidence").mkdir()
    (tmp_path / "r.evidence" / "history.jsonl").write_text("{}\n")
    assert not is_verification(tmp_path / "r.json")
