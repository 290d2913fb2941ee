# SPDX-License-Identifier: Apache-2.0
"""What a run spec asks for reaches the verifier: the in-process connector's settings, a fixture."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kvseal.cli import main
from kvseal.spec.runspec import VerifySpec

NAME = "l4-lmcache-0.5.4"
RunSpecs = Callable[[str], Path]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The verb sets variables for the libraries that it loads."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def acceptance(model: Path, tmp_path: Path) -> RunSpecs:
    """Writes the run spec of a paired acceptance on this CPU, with a work folder of its own."""

    def call(fixture: str) -> Path:
        spec = VerifySpec.load(os.environ["KVSEAL_CHECK_SPEC"])
        verify = dataclasses.replace(
            spec.verify,
            contract="cpu",
            connector="LMCacheConnectorV1",
            compare_native=True,
            suite="acceptance",
            fixture=fixture,
        )
        roots = dataclasses.replace(spec.roots, work=str(tmp_path / "work"))
        path = tmp_path / "run-spec.json"
        path.write_text(dataclasses.replace(spec, verify=verify, roots=roots).dumps())
        return path

    return call


def dry_run(spec: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["verify", "--spec", str(spec), "--dry-run"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["manifest"]["generations_planned"]["total"] == 24
    return shown["request"]


def test_a_fixture_by_name(acceptance: RunSpecs, capsys: pytest.CaptureFixture[str]) -> None:
    request = dry_run(acceptance(NAME), capsys)
    assert request["fixture"]["name"] == NAME
    assert request["targets"] == ["lmcache", "native"]
    effective = request["lmcache_config"]["effective"]
    assert (effective["chunk_size"], effective["max_local_cpu_size"]) == (64, 2.0)


def test_a_fixture_s_file_is_the_one_in_the_work_folder(
    acceptance: RunSpecs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is the controller's; the role kvseal_node brings the file."""
    spec = acceptance("/on/the/controller.json")
    assert main(["verify", "--spec", str(spec), "--dry-run"]) == 2
    brought = tmp_path / "work" / "fixture.json"
    assert str(brought) in capsys.readouterr().err

    known = resources.files("kvseal.checkers.verification").joinpath(f"fixtures/{NAME}.json")
    with resources.as_file(known) as file:
        shutil.copy(file, brought)
    request = dry_run(spec, capsys)
    assert (request["fixture"]["path"], request["fixture"]["name"]) == (str(brought), NAME)


def test_a_run_spec_of_the_other_workflow(
    acceptance: RunSpecs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = json.loads(acceptance(NAME).read_text())
    value["workflow"] = "lmcache-snapkv"
    (tmp_path / "run-spec.json").write_text(json.dumps(value))
    run = tmp_path / "run"
    assert main(["verify", "--spec", str(tmp_path / "run-spec.json"), "--out", str(run)]) == 2
    assert "kvseal verify: " in capsys.readouterr().err
    assert not run.exists()


def test_a_run_folder_that_exists(
    acceptance: RunSpecs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert main(["verify", "--spec", str(acceptance(NAME)), "--out", str(run)]) == 2
    said = capsys.readouterr().err
    assert str(run) in said
    assert "remedy: " in said
    assert list(run.iterdir()) == []
