# SPDX-License-Identifier: Apache-2.0
"""The verifier's play: the same stages, its own verb, and never another workflow's run spec."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kvseal.spec.runspec import load_spec

if TYPE_CHECKING:
    from conftest import Node


def test_from_nothing_to_a_report(node: Node) -> None:
    node.verify()
    first = node.play()
    assert first.status == 0
    lines = [line.strip() for line in first.output.splitlines()]
    order = ["PASS  stand-in", "verifying", "first line of progress", "summary of the report"]
    assert [lines.index(line) for line in order] == sorted(lines.index(line) for line in order)
    assert (node.engine / "patched").is_file()
    sha256 = load_spec(node.spec_file).sha256()
    assert json.loads((node.work / "build-stamp.json").read_text()) == {"spec_sha256": sha256}

    (run,) = (node.results / "runs").iterdir()
    assert run.name.endswith(sha256[:8])
    assert (node.results / "latest").resolve() == run
    assert (run / "report.md").is_file()
    assert node.runs_on_node() == []
    assert (node.work / "logs" / "verify.log").is_file()

    second = node.play("--tags", "doctor,fetch,build,patch")
    assert (second.status, second.changed) == (0, 0)
    assert node.play("--tags", "clean").status == 0
    assert list(node.work.iterdir()) == []
    assert run.is_dir()


@pytest.mark.parametrize(
    ("status", "message"),
    [("1", "a check of the run failed"), ("2", "the run supports no verdict")],
)
def test_failed_verification_is_reported_and_fails_the_play(
    built: Node, status: str, message: str
) -> None:
    played = built.verify().play("--tags", "run,report", COMPARE=status)
    assert played.status == 2
    assert message in played.output
    assert (built.results / "latest" / "report.md").is_file()


def test_killed_verifier_leaves_its_folder(built: Node) -> None:
    played = built.verify().play("--tags", "run,report", COMPARE="kill")
    assert played.status == 2
    assert "the run left no result: its driver ended with exit status 137" in played.output
    assert (built.results / "latest" / "spec.json").is_file()


def test_run_only_where_the_spec_says_so(built: Node) -> None:
    built.verify().spec["run"] = False
    assert built.play().status == 0
    assert not built.results.exists()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_run_spec_of_another_workflow_is_refused(built: Node, swapped: bool) -> None:
    """By each play; nothing is copied or started."""
    if swapped:
        built.verify().playbook = "playbooks/lmcache-snapkv.yml"
    else:
        built.playbook = "playbooks/kv-reuse.yml"
    own, other = ("lmcache-snapkv", "kv-reuse")[:: 1 if swapped else -1]
    played = built.play("--tags", "run")
    assert played.status == 2
    assert "the run spec is of another workflow" in played.output
    assert f"value:    {other}" in played.output
    assert f"make defconfig-{own}-cpu" in played.output
    assert not built.work.exists()


def test_messages_of_roles_name_the_verifier_s_symbols(built: Node) -> None:
    built.verify().spec["lmcache"]["version"] = "0.5.5"
    played = built.play("--tags", "build")
    assert played.status == 2
    assert "CONFIG_WORKFLOW_KNLP_KV_REUSE_LMCACHE_VERSION = 0.5.5" in played.output


def test_a_fixture_s_file_is_brought_and_brought_again_when_edited(built: Node) -> None:
    fixture = built.root / "figures.json"
    built.verify().spec["verify"] |= {"suite": "acceptance", "fixture": str(fixture)}
    for text in ('{"first": 1}', '{"second": 2}'):
        fixture.write_text(text)
        assert built.play("--tags", "patch").status == 0
        assert (built.work / "fixture.json").read_text() == text
    assert built.play("--tags", "clean").status == 0
    assert list(built.work.iterdir()) == []


def test_a_fixture_s_name_needs_no_file_and_a_missing_file_is_named(built: Node) -> None:
    built.verify().spec["verify"] |= {"suite": "acceptance", "fixture": "l4-lmcache-0.5.4"}
    assert built.play("--tags", "patch").status == 0
    assert not (built.work / "fixture.json").exists()

    built.spec["verify"]["fixture"] = str(built.root / "missing.json")
    played = built.play("--tags", "patch")
    assert played.status == 2
    assert "the acceptance fixture is not a file on this machine" in played.output
    assert f"CONFIG_WORKFLOW_KNLP_KV_REUSE_FIXTURE = {built.root / 'missing.json'}" in played.output
