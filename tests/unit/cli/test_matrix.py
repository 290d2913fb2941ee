# SPDX-License-Identifier: Apache-2.0
"""`kvseal matrix`: its options, the table, and a run with a driver that only writes history."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from kvseal.cli import main
from kvseal.errors import EngineError
from kvseal.report import matrix_cases
from kvseal.workload.matrix import ARTIFACTS, CASES

BUILDER = Path(__file__).parents[1] / "checkers" / "matrix" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
HOST = SimpleNamespace(to_json=lambda: {"system": "Linux"})
SPEC = build.matrix_spec(backends=["process"], mixed_requests=0)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The verb sets variables for the libraries that it will load."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Put a function in the driver's place, whose own module needs torch."""

    def put(driver: Callable[..., None]) -> None:
        module = ModuleType("kvseal.drivers.matrix.run")
        module.run_matrix = driver  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kvseal.drivers.matrix.run", module)
        monkeypatch.setattr("kvseal.cli.execution.gather", lambda _: HOST)

    return put


def spec_file(folder: Path) -> Path:
    path = folder / "run-spec.json"
    path.write_text(SPEC.dumps())
    return path


def recorded(damage: Callable[[list[dict[str, Any]]], None]) -> Callable[..., None]:
    """A driver that writes an ideal run, damaged; its first and last events are written by all."""

    def driver(spec: Any, recording: Any, host: Any) -> None:
        events = build.passing_events(spec)[1:-1]
        damage(events)
        for event in events:
            recording.history.append(event)

    return driver


def unsafe(events: list[dict[str, Any]]) -> None:
    where = {"case": "literal-retained-tokens", "after": "none"}
    build.find(events, "asked", **where)["hit_tokens_server"] = 64


def test_a_run_is_judged_shown_and_can_be_checked(
    tmp_path: Path, drive: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(recorded(lambda events: None))
    out = tmp_path / "run"
    assert main(["matrix", "--spec", str(spec_file(tmp_path)), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PASS  run\nEvery request got the KV that it names")
    assert json.loads((out / "result.json").read_text())["verdict"] == "PASS"
    assert main(["check", str(out)]) == 0
    assert capsys.readouterr().out == shown


def test_an_unsafe_hit_ends_with_one(
    tmp_path: Path, drive: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(recorded(unsafe))
    arguments = ["--spec", str(spec_file(tmp_path)), "--out", str(tmp_path / "run")]
    assert main(["matrix", *arguments]) == 1
    assert "hit.unsafe" in capsys.readouterr().out


def test_a_run_that_breaks_leaves_a_result_that_says_so(
    tmp_path: Path, drive: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def driver(*_: object) -> None:
        raise EngineError("vLLM is gone")

    drive(driver)
    arguments = ["--spec", str(spec_file(tmp_path)), "--out", str(tmp_path / "run")]
    assert main(["matrix", *arguments]) == 2
    assert "vLLM is gone" in capsys.readouterr().err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["verdict"] == "INCONCLUSIVE"
    assert "run.error" in {entry["code"] for entry in result["reasons"]}


def test_a_spec_of_another_workflow_is_refused(
    tmp_path: Path, drive: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(recorded(lambda events: None))
    other = runpy.run_path(str(Path(__file__).parents[1] / "records" / "builder.py"))
    path = tmp_path / "run-spec.json"
    path.write_text(json.dumps(other["spec_json"]()))
    assert main(["matrix", "--spec", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "another workflow" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--spec"),
        (["--spec", "s.json"], "--out"),
        (["--out", "o"], "--spec"),
        (["--list", "--out", "o"], "--out = 'o'"),
        (["--list", "--spec", "s.json"], "--spec = 's.json'"),
        (["--json", "--spec", "s.json", "--out", "o"], "--json"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert f"option:   {said}" in output.err
    assert "remedy" in output.err


def test_the_table_is_printed_without_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", "group", "stored", "asked", "by", "must", "be", "cells"]
    assert [line.split()[0] for line in lines[1 : len(CASES) + 1]] == [case.name for case in CASES]
    assert lines[-2].startswith(f"{len(CASES)} cases, ")


def test_the_table_as_json_has_every_case_with_its_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["matrix", "--list", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table == json.loads(json.dumps(matrix_cases.document()))
    assert [case["name"] for case in table["cases"]] == [case.name for case in CASES]
    assert [artifact["name"] for artifact in table["artifacts"]] == list(ARTIFACTS)
    (own,) = [case for case in table["cases"] if case["name"] == "lease-ended"]
    assert [step["what"] for step in own["steps"]] == ["ask", "end-lease", "ask"]
    assert own["steps"][2]["required"] == "miss"
