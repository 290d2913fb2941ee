# SPDX-License-Identifier: Apache-2.0
"""A change killed after any of its writes must be visible, and repairable in both directions."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.inspection import inspect
from kvseal.codemods.registry import select

CODEMODS = tuple(select(["vllm_distribution_name", "vllm_query_export"]))

Snapshot = Callable[[Environment], dict[str, bytes]]
MOST_STEPS = 60


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Run `act` in a process that kills itself at its `step`th rename or removal; was it killed?"""
    child = os.fork()
    if child == 0:
        left = step

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def call(*args: object, **kwargs: object) -> None:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                real(*args, **kwargs)

            return call

        os.replace = counted(os.replace)  # type: ignore[assignment]
        Path.unlink = counted(Path.unlink)  # type: ignore[assignment,method-assign]
        status = 3
        try:
            act()
            status = 0
        except Exception:  # noqa: BLE001  (shown; the parent fails on the status)
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("killed", ["apply", "revert"])
@pytest.mark.parametrize("then", ["apply", "revert"])
def test_killed_at_every_step_and_repaired(
    killed: str, then: str, environment: Environment, snapshot: Snapshot
) -> None:
    acts = {
        "apply": lambda: patchset.apply(environment, CODEMODS),
        "revert": lambda: patchset.revert(environment, CODEMODS),
    }
    want = {"revert": snapshot(environment)}
    acts["apply"]()
    want["apply"] = snapshot(environment)
    opposite = {"apply": "revert", "revert": "apply"}
    for step in range(MOST_STEPS):
        acts[opposite[killed]]()
        assert snapshot(environment) == want[opposite[killed]]
        if not killed_at(step, acts[killed]):
            assert snapshot(environment) == want[killed]
            assert step > 8, "fewer steps than files: the test did not reach the writes"
            return
        # Whatever status says must be true: without a problem, the state is a whole one.
        found = inspect(environment)
        if not found.problems:
            applied = "apply" if found.record["codemods"] else "revert"
            assert snapshot(environment) == want[applied]
        acts[then]()
        assert snapshot(environment) == want[then]
        folders = list(environment.site_packages.glob("vllm-*"))
        assert len(folders) == (1 if then == "apply" else 0)
        assert inspect(environment).problems == []
        assert not list(environment.root.rglob("journal.json"))
    pytest.fail(f"still killed after {MOST_STEPS} steps")


def test_killed_twice_in_a_row(environment: Environment, snapshot: Snapshot) -> None:
    before = snapshot(environment)
    for first in range(2, 9):
        assert killed_at(first, lambda: patchset.apply(environment, CODEMODS))
        killed_at(first + 1, lambda: patchset.revert(environment, CODEMODS))
        patchset.revert(environment, CODEMODS)
        assert snapshot(environment) == before
        assert inspect(environment).problems == []
