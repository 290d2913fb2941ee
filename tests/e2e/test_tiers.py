# SPDX-License-Identifier: Apache-2.0
"""Every second tier that runs here, by `make`, on two LMCaches; part of `make check-all`.

Over an hour each, so CI runs some of them (test_matrix.py). A tier that can't run
here is told by its reason, and the run is then no PASS.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.workload.matrix.case import BEHIND

if TYPE_CHECKING:
    from conftest import Command, Configure

PROFILE = "defconfig-lmcache-snapkv-matrix-tiers-cpu"
ROOT = "WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX"
SECONDS = 3 * 3600
SALTLESS = "fs_native"
"""What LMCache 0.5.4 gives no salted key to (docs/backends.md)."""


@pytest.fixture(scope="module")
def run(make: Command, configure: Configure, checkout: Path) -> Any:
    """Return a function that runs the profile with some options changed: exit status, result."""

    def call(options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        configured = make(PROFILE)
        assert configured.returncode == 0, configured.stdout + configured.stderr
        configure(ROOT, options)
        done = make(timeout=SECONDS)
        print(done.stdout[-8000:], done.stderr[-3000:])
        results = checkout / "results" / "lmcache-snapkv-matrix"
        return done.returncode, json.loads((results / "latest" / "result.json").read_text())

    return call


def test_each_tier_on_the_newer_lmcache(run: Any) -> None:
    status, result = run({})
    assert (result["verdict"], status, result["reasons"]) == ("PASS", 0, [])
    assert result["versions"]["lmcache_version"] == "0.5.6"
    assert set(result["backends"]) == set(BEHIND)
    cells = [cell for row in result["rows"] for cell in row["cells"]]
    required = Counter((cell["backend"], cell["after"], cell["required"]) for cell in cells)
    for tier, lasts in BEHIND.items():
        for after in result["afters"]:
            assert required[tier, after, "miss"] > 0, (tier, after)
        assert (required[tier, "both", "hit"] > 0) is lasts, tier


def test_each_tier_but_the_one_that_knows_no_salt_on_the_older(run: Any) -> None:
    off = {f"BACKEND_{SALTLESS.upper()}": False}
    status, result = run(off | {"LMCACHE_VERSION": "0.5.4"})
    assert (result["verdict"], status, result["reasons"]) == ("PASS", 0, [])
    assert result["versions"]["lmcache_version"] == "0.5.4"
    assert set(result["backends"]) == set(BEHIND) - {SALTLESS}


def test_that_one_is_refused_by_name_there(run: Any) -> None:
    only = {f"BACKEND_{name.upper()}": name == SALTLESS for name in BEHIND}
    some = {"RESTART_ENGINE": False, "RESTART_SERVER": False, "RESTART_BOTH": False}
    status, result = run(only | some | {"LMCACHE_VERSION": "0.5.4"})
    assert (result["verdict"], status) == ("INCONCLUSIVE", 2)
    codes = [reason["code"] for reason in result["reasons"]]
    assert "backend.unusable" in codes
    assert result["counts"]["cells"] == 0
