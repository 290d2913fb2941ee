# SPDX-License-Identifier: Apache-2.0
"""The matrix's play: the same stages, its own verb, and never a run spec of another workflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvseal.spec.runspec import load_spec

if TYPE_CHECKING:
    from conftest import Node


def test_from_nothing_to_a_report(node: Node) -> None:
    node.matrix()
    first = node.play()
    assert first.status == 0
    lines = [line.strip() for line in first.output.splitlines()]
    order = ["PASS  stand-in", "asking", "first line of progress", "summary of the report"]
    assert [lines.index(line) for line in order] == sorted(lines.index(line) for line in order)
    assert (node.engine / "patched").is_file()
    sha256 = load_spec(node.spec_file).sha256()
    assert json.loads((node.work / "build-stamp.json").read_text()) == {"spec_sha256": sha256}

    (run,) = (node.results / "runs").iterdir()
    assert run.name.endswith(sha256[:8])
    assert (node.results / "latest").resolve() == run
    assert (run / "report.md").is_file()
    assert node.runs_on_node() == []
    assert (node.work / "logs" / "matrix.log").is_file()

    second = node.play("--tags", "doctor,fetch,build,patch")
    assert (second.status, second.changed) == (0, 0)
    assert node.play("--tags", "clean").status == 0
    assert list(node.work.iterdir()) == []
    assert run.is_dir()


def test_packages_of_second_tiers_are_installed_where_one_needs_them(built: Node) -> None:
    lock = Path(built.spec["environment"]["lock"])
    own = lock.with_name("backends.txt")
    own.write_text(next(line for line in lock.open() if line.startswith("lmcache==")))
    folder = built.engine / "backends"
    built.matrix().spec["matrix"]["backends"] = ["mp", "resp"]
    assert built.play("--tags", "build").status == 0
    assert not folder.exists()

    built.spec["matrix"]["backends"] = ["mp", "s3"]
    assert built.play("--tags", "build").status == 0
    (folder / "left-over").touch()
    assert [path.name for path in folder.glob("*.dist-info")] == ["lmcache-0.5.4.dist-info"]
    again = built.play("--tags", "build")
    assert (again.status, again.changed) == (0, 0)

    own.write_text("# another lock\n" + own.read_text())
    assert built.play("--tags", "build").status == 0
    assert list(folder.glob("*.dist-info")) and not (folder / "left-over").exists()


def test_a_red_matrix_is_reported_and_fails_the_play(built: Node) -> None:
    played = built.matrix().play("--tags", "run,report", COMPARE="1")
    assert played.status == 2
    assert "a check of the run failed" in played.output
    assert (built.results / "latest" / "report.md").is_file()


def test_what_an_interrupted_matrix_left_is_brought_back(built: Node) -> None:
    left = built.matrix().work / "runs" / "20261130T120000Z-00000000"
    left.mkdir(parents=True)
    (left / "history.jsonl").write_text("{}\n")
    assert built.play("--tags", "bring_back").status == 0
    assert (built.results / "runs" / left.name / "history.jsonl").read_text() == "{}\n"
    assert built.runs_on_node() == []


@pytest.mark.parametrize("swapped", [False, True])
def test_a_run_spec_of_the_workflow_whose_name_begins_this_one_is_refused(
    built: Node, swapped: bool
) -> None:
    """And the other way round; nothing is copied or started."""
    own, other = ("lmcache-snapkv", "lmcache-snapkv-matrix")[:: 1 if swapped else -1]
    if swapped:
        built.matrix()
    built.playbook = f"playbooks/{own}.yml"
    played = built.play("--tags", "run")
    assert played.status == 2
    assert "the run spec is of another workflow" in played.output
    assert f"value:    {other}\n" in played.output
    assert f"make defconfig-{own} or make defconfig-{own}-cpu" in played.output
    assert not built.work.exists()


def test_messages_of_roles_name_the_matrix_s_symbols(built: Node) -> None:
    built.matrix().spec["lmcache"]["version"] = "0.5.6"
    played = built.play("--tags", "build")
    assert played.status == 2
    symbol = "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX_LMCACHE_VERSION"
    assert f"{symbol} = 0.5.6" in played.output
