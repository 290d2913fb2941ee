# SPDX-License-Identifier: Apache-2.0
"""`kvseal check` of a verification: its verdict again, its notes, and a fixture made of it."""

import json
import os
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.verification.fixture import parse_fixture
from kvseal.cli import main
from kvseal.records.places import Places

UNIT = Path(__file__).parents[1]
build = SimpleNamespace(**runpy.run_path(str(UNIT / "checkers" / "verification" / "builder.py")))
compare = SimpleNamespace(**runpy.run_path(str(UNIT / "records" / "builder.py")))
MODEL = {"requested": "/home/me/m", "path": "/home/me/m", "revision": f"sha256:{'a' * 64}"}


def events(**changes):
    made = build.passing_events(**({"model": MODEL} | changes))
    made[0]["host"] = {"cpu_model": {"value": "A CPU", "source": "/proc/cpuinfo"}}
    build.one(made, "environment")["details"] = {"distributions": {"vllm": "0.28.0"}}
    return made


def failing():
    made = events()
    build.give(build.answer_of(made, "lmcache", build.PAIR[0].id, "reuse", 1), 11, 7, 13, 14)
    return made


def keep(folder, made, **options):
    return build.keep(Places(folder / "r.json", folder / "r.evidence"), made, **options)


def check(capsys, *arguments):
    """Return exit status, standard output and error of `kvseal check`."""
    status = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    ("made", "verdict", "expected"),
    [(events(), "PASS", 0), (failing(), "FAIL", 1), (events()[:12], "INCONCLUSIVE", 2)],
)
def test_the_exit_status_is_the_verdict_s(tmp_path, capsys, made, verdict, expected):
    places = keep(tmp_path, made)
    for path in (places.report, places.folder):
        status, out, _ = check(capsys, path)
        assert status == expected
        assert out.startswith(f"{verdict}  {places.report}\n")
        assert "evidence contract strict" in out
        assert "note:" not in out


def test_a_run_folder_is_checked_like_a_report(tmp_path, capsys):
    build.keep(Places(tmp_path / "run" / "result.json", tmp_path / "run"), failing())
    assert check(capsys, tmp_path / "run")[0] == 1


def test_json_is_the_report_and_notes_go_elsewhere(tmp_path, capsys):
    places = keep(tmp_path, failing())
    status, out, error = check(capsys, places.report, "--json")
    assert (status, error) == (1, "")
    assert json.loads(out) == json.loads(places.report.read_text())
    (places.folder / "note.txt").write_text("x")
    _, out, error = check(capsys, places.report, "--json")
    assert json.loads(out)["schema"] == "efim.kv-reuse-verification.v1"
    assert error == "note: not covered by files.json: note.txt\n"


def test_a_killed_run_is_judged_by_its_history_and_noted(tmp_path, capsys):
    places = keep(tmp_path, failing(), finished=False)
    lines = places.history.read_bytes().splitlines(keepends=True)
    places.history.write_bytes(b"".join(lines[:-3]))
    status, out, error = check(capsys, places.report)
    assert (status, out) == (2, "")
    assert "not what its own history gives" in error
    places.report.unlink()
    status, out, _ = check(capsys, places.folder)
    assert status == 1  # the probe that had failed is still one
    assert "note: no files.json: the run was killed before its end" in out
    assert f"note: there is no report at {places.report}" in out


@pytest.mark.parametrize("name", ["history.jsonl", "logs/control.log"])
def test_changed_evidence_is_none(tmp_path, capsys, name):
    places = keep(tmp_path, events())
    (places.folder / name).write_bytes(b"x")
    status, out, error = check(capsys, places.report)
    assert (status, out) == (2, "")
    assert f"changed: {name}" in error
    assert "remedy" in error


def test_a_report_without_its_evidence_is_a_bad_option(tmp_path, capsys):
    places = keep(tmp_path, events())
    places.folder.rename(tmp_path / "elsewhere")
    status, _, error = check(capsys, places.report)
    assert status == 2
    assert str(places.history) in error


def test_control_characters_of_a_record_do_not_reach_the_terminal(tmp_path, capsys):
    made = events()
    made[0]["contract"]["statement"] = "\x1b[2J\nPASS"
    places = keep(tmp_path, made)
    (places.folder / "\x1b[2Jx").write_text("x")
    _, out, _ = check(capsys, places.report)
    assert "\x1b" not in out
    assert "\nPASS" not in out


def test_a_fixture_is_written_once(tmp_path, capsys):
    places, path = keep(tmp_path, failing()), tmp_path / "own-1.2.json"
    assert check(capsys, places.report, "--write-fixture", path)[0] == 1
    fixture = parse_fixture(json.loads(path.read_text()))
    assert fixture.name == "own-1.2"
    assert fixture.targets == {"native": "pass", "lmcache": "fail"}
    before = path.read_bytes()
    status, _, error = check(capsys, places.report, "--write-fixture", path)
    assert status == 2
    assert "--write-fixture" in error
    assert "exists already" in error
    assert path.read_bytes() == before


def test_a_link_is_not_written_through(tmp_path, capsys):
    places, path = keep(tmp_path, events()), tmp_path / "f.json"
    path.symlink_to(tmp_path / "nowhere")
    assert check(capsys, places.report, "--write-fixture", path)[0] == 2
    assert path.is_symlink()


def test_no_fixture_is_made_of_a_run_that_broke_off(tmp_path, capsys):
    places, path = keep(tmp_path, events()[:-1], finished=False), tmp_path / "f.json"
    status, _, error = check(capsys, places.report, "--write-fixture", path)
    assert status == 2
    assert "only a whole run" in error
    assert not path.exists()


def test_no_fixture_is_made_of_a_comparison(tmp_path, capsys):
    run, path = compare.run_folder(tmp_path / "run"), tmp_path / "f.json"
    status, _, error = check(capsys, run, "--write-fixture", path)
    assert status == 2
    assert "only a verification" in error
    assert not path.exists()


def test_a_fixture_that_can_not_be_written_is_a_bad_option(tmp_path, capsys):
    places = keep(tmp_path, events())
    paths = [tmp_path / "none" / "f.json"]
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        paths.append(tmp_path / "closed" / "f.json")
    for path in paths:
        status, _, error = check(capsys, places.report, "--write-fixture", path)
        assert status == 2
        assert "--write-fixture" in error
