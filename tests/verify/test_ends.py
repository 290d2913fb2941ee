# SPDX-License-Identifier: Apache-2.0
"""A verification that is cut short: what it left can be read, claims no more, and runs nowhere."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from kvseal import store
from kvseal.process.leftovers import RUN_VARIABLE
from kvseal.process.segments import mapped, present
from kvseal.process.tree import descendants, environment_of

if TYPE_CHECKING:
    from conftest import Start

pytestmark = pytest.mark.engines

SERVER = ("--evidence-contract", "mp", "--kv-connector", "LMCacheMPConnector", "--chunk-size", "64")
PROBES = 6


def probes_of(report: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """What the report tells of each probe of the control or of a target; nothing yet: empty."""
    parts = [{**report["control"], "target": "control"}, *report["targets"]]
    return [probe for part in parts if part["target"] == target for probe in part["probes"]]


def completed(report: dict[str, Any], target: str) -> int:
    return sum(probe["state"] == "complete" for probe in probes_of(report, target))


@pytest.mark.parametrize(("target", "count"), [("control", 1), ("control", 4), ("mp", 2)])
def test_driver_killed_after_some_probes(start: Start, target: str, count: int) -> None:
    run = start(*SERVER)
    run.wait_for(lambda report: completed(report, target) >= count, 400)
    family = [process.pid for process in descendants([run.process.pid])]
    identities = {environment_of(pid).get(RUN_VARIABLE) for pid in family} - {None}
    segments = {name for pid in family for name in mapped(pid)}
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()

    report = run.stored()
    assert report is not None
    assert count <= completed(report, target) < PROBES
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["complete"] is False
    for probe in [*probes_of(report, "control"), *probes_of(report, "mp")]:
        assert probe["state"] == "complete" or probe["verdict"] == "inconclusive"
    # The control's own end is on record only once it came.
    assert (report["control"]["state"] == "finished") == (target == "mp")

    checked = run.check()
    assert checked.returncode == 2, checked.stdout + checked.stderr
    assert "killed" in checked.stdout
    again = json.loads(run.check("--json").stdout)
    assert completed(again, target) >= completed(report, target)
    assert again["verdict"] == "INCONCLUSIVE"

    (identity,) = identities
    # The server's memory has the run's own name; an engine's queues have any.
    assert any(f"kvseal_{identity}" in name for name in segments) == (target == "mp")
    run.leaves_nothing(60, (f"kvseal_{identity}",))
    assert not segments & present()


def test_ctrl_c_once(start: Start) -> None:
    run = start(*SERVER)
    run.wait_for(lambda report: True, 120)
    os.killpg(run.process.pid, signal.SIGINT)
    status, output = run.ended(120)
    assert status == 130, output
    report = run.stored()
    assert report is not None
    assert report["interrupted"] == "SIGINT"
    assert report["verdict"] == "INCONCLUSIVE"
    assert "run.interrupted" in {reason["code"] for reason in report["reasons"]}
    files = store.verify_manifest(run.folder)
    assert files, files.lines()
    assert run.check().returncode == 2
    run.leaves_nothing()
