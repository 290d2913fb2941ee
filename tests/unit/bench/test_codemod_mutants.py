# SPDX-License-Identifier: Apache-2.0
"""The copies that codemods are left out of, and what is made of the runs on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kvseal.codemods.environment import Environment
from kvseal.codemods.ledger import Ledger, replace_file
from kvseal.workload.matrix import case_named

ROOT = Path(__file__).parents[3]
OTHERS = {"vllm_distribution_name", "vllm_query_export"}
"""Codemods that have nothing to do with transform identity."""


@pytest.fixture(scope="module")
def mutants() -> Any:
    """The script, imported as it is when it is run."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import codemod_mutants
    finally:
        sys.path.pop(0)
    yield codemod_mutants
    for name in ("codemod_mutants", "codemod_rows"):
        sys.modules.pop(name, None)


def test_every_codemod_of_transform_identity_has_rows(mutants: Any) -> None:
    pytest.importorskip("libcst")
    from kvseal.codemods.registry import CODEMODS

    assert set(mutants.MUTANTS) == {codemod.name for codemod in CODEMODS} - OTHERS


def test_every_row_is_a_cell_of_the_table(mutants: Any) -> None:
    for name, rows in mutants.MUTANTS.items():
        for case, backend in rows.red | rows.green:
            assert backend in rows.backends, name
            assert backend in case_named(case).backends, (name, case)
            assert "none" in case_named(case).afters, (name, case)


def test_no_row_must_be_red_and_green(mutants: Any) -> None:
    for name, rows in mutants.MUTANTS.items():
        assert not rows.red & rows.green, name
        assert bool(rows.red and rows.green) == rows.starts, name


def test_a_copy_shares_bytes_and_no_lock(mutants: Any, tmp_path: Path) -> None:
    original = tmp_path / "engine"
    (original / ".kvseal").mkdir(parents=True)
    (original / "lib").mkdir()
    for name in ("lib/module.py", ".kvseal/patches.json", ".kvseal/lock", ".lock"):
        (original / name).write_text(name)
    (original / "lib64").symlink_to("lib")
    copy = tmp_path / "copy"
    mutants.linked(original, copy)
    assert (copy / "lib/module.py").samefile(original / "lib/module.py")
    assert (copy / "lib64").readlink() == Path("lib")
    assert not (copy / ".kvseal/lock").exists()
    assert not (copy / ".lock").exists()


def test_what_replaces_a_file_of_the_copy_leaves_the_original(mutants: Any, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/module.py").write_text("as installed")
    mutants.linked(tmp_path / "engine", tmp_path / "copy")
    replace_file(tmp_path / "copy/module.py", b"edited")
    assert (tmp_path / "engine/module.py").read_text() == "as installed"


def test_the_spec_of_a_mutant_runs_its_rows_once(mutants: Any) -> None:
    rows = mutants.MUTANTS["lmcache_scope_enforcement"]
    spec = {"environment": {"path": "/e", "name": "n"}, "matrix": {"seed": 3}, "vllm": {}}
    made = mutants.spec_of(spec, rows, Path("/copy"))
    assert made["environment"] == {"path": "/copy", "name": "n"}
    assert made["matrix"]["seed"] == 3
    assert made["matrix"]["backends"] == ["mp", "fs"]
    assert made["matrix"]["restarts"] == []
    assert set(made["matrix"]["cases"]) == {case for case, _ in rows.red | rows.green}
    assert spec["environment"]["path"] == "/e"


def result(verdict: str, outcomes: dict[tuple[str, str], str], *codes: str) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "rows": [
            {"case": case, "cells": [{"backend": backend, "outcome": outcome}]}
            for (case, backend), outcome in outcomes.items()
        ],
        "reasons": [{"code": code, "message": f"because of {code}"} for code in codes],
    }


def judged(mutants: Any, verdict: str, red: str, green: str, *codes: str) -> dict[str, Any]:
    rows = mutants.Rows(("mp",), red=frozenset({("one", "mp")}), green=frozenset({("two", "mp")}))
    outcomes = {("one", "mp"): red, ("two", "mp"): green}
    found: dict[str, Any] = mutants.judged(rows, result(verdict, outcomes, *codes))
    return found


def test_a_mutant_is_caught_by_its_row_alone(mutants: Any) -> None:
    found = judged(mutants, "FAIL", "unsafe_hit", "passed")
    assert found["as_expected"]
    assert found["ended"] == "FAIL"
    assert found["red"] == {"one@mp": "unsafe_hit"}


@pytest.mark.parametrize(
    ("red", "green", "missed", "hurt"),
    [
        ("passed", "passed", ["one@mp"], []),
        ("inconclusive", "passed", ["one@mp"], []),
        ("lost_hit", "lost_hit", [], ["two@mp"]),
        ("lost_hit", "inconclusive", [], ["two@mp"]),
    ],
)
def test_any_other_row_is_not_as_expected(
    mutants: Any, red: str, green: str, missed: list[str], hurt: list[str]
) -> None:
    found = judged(mutants, "FAIL", red, green)
    assert not found["as_expected"]
    assert (found["not_red"], found["not_green"]) == (missed, hurt)


def test_a_mutant_that_passes_has_survived(mutants: Any) -> None:
    assert judged(mutants, "PASS", "passed", "passed")["ended"] == "SURVIVED"


def test_engines_that_do_not_start_are_expected_of_one_codemod_only(mutants: Any) -> None:
    codes = ("engines.missing", "run.error")
    found = judged(mutants, "INCONCLUSIVE", "inconclusive", "inconclusive", *codes)
    assert (found["ended"], found["as_expected"]) == ("engines don't start", False)
    rows = mutants.MUTANTS["lmcache_transform_identity"]
    outcomes = {("ordinary-same-prefix", "mp"): "inconclusive"}
    found = mutants.judged(rows, result("INCONCLUSIVE", outcomes, *codes))
    assert found["as_expected"]
    assert found["message"] == "because of run.error"


def test_original_and_copy_are_patched_side_by_side(mutants: Any, tmp_path: Path) -> None:
    def ledger(name: str) -> Ledger:
        return Ledger(Environment(tmp_path / name, tmp_path / name))

    (tmp_path / "engine").mkdir()
    with ledger("engine").locked():
        mutants.linked(tmp_path / "engine", tmp_path / "copy")
        with ledger("copy").locked(timeout_seconds=0):
            pass
