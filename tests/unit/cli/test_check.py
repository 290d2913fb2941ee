# SPDX-License-Identifier: Apache-2.0
"""`kvseal check`: the verdict again from the files alone, and what it does about damage."""

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.cli import main
from kvseal.records import builders
from kvseal.store import write_manifest

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))


@pytest.fixture
def run(tmp_path):
    return build.run_folder(tmp_path / "20261130T120000Z-abcdef01")


def check(capsys, *arguments):
    """Return exit status, standard output and error of `kvseal check`."""
    status = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_passing_run_passes_and_nothing_is_written(run, capsys):
    before = sorted(path.name for path in run.rglob("*"))
    status, out, _ = check(capsys, run)
    assert status == 0
    assert out.startswith("PASS  20261130T120000Z-abcdef01\nThese figures hold")
    assert sorted(path.name for path in run.rglob("*")) == before


def test_the_verdict_travels_with_the_folder(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "elsewhere")
    shutil.rmtree(run)
    assert check(capsys, tmp_path / "elsewhere")[0] == 0


def test_json_holds_verdict_reasons_and_result(run, capsys):
    status, out, _ = check(capsys, run, "--json")
    document = json.loads(out)
    assert (status, document["verdict"], document["reasons"]) == (0, "PASS", [])
    assert document["result"] == json.loads((run / "result.json").read_text())


def test_an_unproven_hit_ends_with_two_and_its_reason(tmp_path, capsys):
    events = build.passing_events(build.make_spec())
    next(e for e in events if e.get("arm") == "snapkv")["hit_tokens_server"] = 0
    status, out, _ = check(capsys, build.run_folder(tmp_path / "run", events))
    assert status == 2
    assert "snapkv.hit_missing" in out


def test_another_reference_ends_with_one(tmp_path, capsys):
    events = build.passing_events(build.make_spec())
    reference = next(e for e in events if e["event"] == "reference")
    reference.update(output_token_ids=[5, 9, 9], first_difference=1, top2_margin=2.0)
    status, out, _ = check(capsys, build.run_folder(tmp_path / "run", events))
    assert status == 1
    assert "reference.differs" in out


def test_a_result_made_better_by_hand_fails_even_with_fresh_digests(run, capsys):
    document = json.loads((run / "result.json").read_text())
    document["snapkv"]["correct"] = 4
    (run / "result.json").write_text(json.dumps(document))
    write_manifest(run)
    status, out, _ = check(capsys, run)
    assert status == 1
    assert "result.differs" in out
    assert "in snapkv" in out


def test_a_run_without_result_is_inconclusive(run, capsys):
    (run / "result.json").unlink()
    write_manifest(run)
    status, out, _ = check(capsys, run)
    assert status == 2
    assert "result.missing" in out


@pytest.mark.parametrize("name", ["history.jsonl", "logs/vllm.log", "result.json"])
def test_a_changed_file_is_no_evidence(run, name, capsys):
    (run / name).write_bytes((run / name).read_bytes() + b" ")
    status, out, error = check(capsys, run)
    assert (status, out) == (2, "")
    assert f"changed: {name}" in error
    assert "remedy" in error


def test_a_missing_file_is_no_evidence(run, capsys):
    (run / "logs" / "vllm.log").unlink()
    status, _, error = check(capsys, run)
    assert status == 2
    assert "missing: logs/vllm.log" in error


def test_another_spec_with_fresh_digests_is_noticed(run, capsys):
    spec = json.loads((run / "spec.json").read_text())
    spec["snapkv"]["kernel_tokens"] = 7
    (run / "spec.json").write_text(json.dumps(spec))
    write_manifest(run)
    status, out, _ = check(capsys, run)
    assert status == 1
    assert "run.spec_differs" in out


@pytest.mark.parametrize("text", ["--- a\n", None])
def test_a_foreign_or_missing_diff_is_refused(run, text, capsys):
    (run / "patches.diff").unlink()
    if text is not None:
        (run / "patches.diff").write_text(text)
    write_manifest(run)
    status, _, error = check(capsys, run)
    assert status == 2
    assert "patches.diff" in error


def test_unlisted_files_are_named_and_reports_are_not(run, capsys):
    (run / "note.txt").write_text("x")
    (run / "report.md").write_text("x")
    status, out, _ = check(capsys, run)
    assert status == 0
    assert "does not list it: note.txt" in out
    assert "report.md" not in out


def test_a_broken_off_run_is_judged_too(tmp_path, capsys):
    events = build.passing_events(build.make_spec())[:9]
    events.append(builders.interrupted(signal="SIGINT"))
    status, out, _ = check(capsys, build.run_folder(tmp_path / "run", events))
    assert status == 2
    assert "run.interrupted" in out


def test_control_characters_of_a_record_do_not_reach_the_terminal(tmp_path, capsys):
    events = build.passing_events(build.make_spec())[:9]
    events.append(builders.error(where="engine", message="\x1b[2Jgone\nPASS"))
    _, out, _ = check(capsys, build.run_folder(tmp_path / "run", events))
    assert "\x1b" not in out
    assert "\nPASS" not in out


def test_no_folder_is_a_bad_option(tmp_path, capsys):
    status, _, error = check(capsys, tmp_path / "none")
    assert status == 2
    assert "no such run folder" in error


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    status, _, error = check(capsys, tmp_path)
    assert status == 2
    assert "files.json" in error
