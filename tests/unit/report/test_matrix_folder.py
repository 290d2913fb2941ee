# SPDX-License-Identifier: Apache-2.0
"""Run folders of a matrix read back: known for what they are, and judged again."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import EvidenceError, OptionError
from kvseal.report.matrix_folder import is_matrix, read_matrix
from kvseal.store import write_manifest
from kvseal.verdict import Verdict

UNIT = Path(__file__).parents[1]
build = SimpleNamespace(**runpy.run_path(str(UNIT / "checkers" / "matrix" / "builder.py")))
compare = SimpleNamespace(**runpy.run_path(str(UNIT / "records" / "builder.py")))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder: Path = build.run_folder(tmp_path / "run", backends=["process"], mixed_requests=0)
    return folder


def test_a_matrix_is_known_by_its_spec(run: Path) -> None:
    assert is_matrix(run)
    (run / "history.jsonl").unlink()
    assert is_matrix(run)


def test_a_matrix_whose_spec_is_gone_is_known_by_its_history(run: Path) -> None:
    (run / "spec.json").unlink()
    assert is_matrix(run)


def test_nothing_else_is_a_matrix(run: Path, tmp_path: Path) -> None:
    assert not is_matrix(compare.run_folder(tmp_path / "compared"))
    assert not is_matrix(tmp_path)
    assert not is_matrix(tmp_path / "none")
    assert not is_matrix(run / "result.json")


def test_a_stored_run_is_judged_again(run: Path) -> None:
    found = read_matrix(run)
    assert found.verdict is Verdict.PASS
    assert found.result == json.loads((run / "result.json").read_text())
    assert (found.name, found.unlisted) == ("run", ())
    assert found.patches["codemods"][0]["name"] == "lmcache_key_variant"


def test_a_result_that_was_changed_fails(run: Path) -> None:
    document = json.loads((run / "result.json").read_text())
    document["counts"]["unsafe_hits"] = 1
    (run / "result.json").write_text(json.dumps(document))
    write_manifest(run)
    found = read_matrix(run)
    assert found.verdict is Verdict.FAIL
    assert found.result["reasons"][-1]["code"] == "result.differs"


def test_a_changed_file_is_no_evidence(run: Path) -> None:
    (run / "history.jsonl").write_bytes((run / "history.jsonl").read_bytes() + b" ")
    with pytest.raises(EvidenceError, match="not those that the run wrote"):
        read_matrix(run)


def test_another_spec_is_noticed(run: Path) -> None:
    spec = json.loads((run / "spec.json").read_text())
    spec["matrix"]["seed"] = 1
    (run / "spec.json").write_text(json.dumps(spec))
    write_manifest(run)
    codes = [entry["code"] for entry in read_matrix(run).result["reasons"]]
    assert codes == ["run.spec_differs", "result.differs"]


def test_a_spec_of_another_workflow_is_refused(run: Path) -> None:
    spec = json.dumps(compare.spec_json())
    (run / "spec.json").write_text(spec)
    write_manifest(run)
    with pytest.raises(OptionError, match="another workflow"):
        read_matrix(run)


def test_a_diff_that_is_not_the_recorded_one_is_refused(run: Path) -> None:
    (run / "patches.diff").write_text("--- a\n")
    write_manifest(run)
    with pytest.raises(EvidenceError, match=r"patches\.diff"):
        read_matrix(run)


def test_a_run_without_patches_is_stock(run: Path) -> None:
    (run / "patches.json").unlink()
    (run / "patches.diff").unlink()
    write_manifest(run)
    assert read_matrix(run).patches == {}


def test_unlisted_files_are_named_and_reports_are_not(run: Path) -> None:
    (run / "note.txt").write_text("x")
    (run / "report.html").write_text("x")
    assert read_matrix(run).unlisted == ("note.txt",)
