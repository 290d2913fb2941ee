# SPDX-License-Identifier: Apache-2.0
"""What comes back of a faulty second tier is right, a miss or an error, and wrong without seals.

Runs bench/l2_faults.py on real LMCaches with all edits, on folders and on a Redis
server where one is installed; on moto's S3 where KVSEAL_TEST_BACKEND_PACKAGES
names the packages for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("libcst", reason="edits are made with LibCST")

from kvseal.codemods.registry import CODEMODS

if TYPE_CHECKING:
    from conftest import LMCacheCopy

ROOT = Path(__file__).parents[3]
PACKAGES = os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "")
PYTHON = os.environ.get("KVSEAL_TEST_ENGINE_PYTHON", sys.executable)
BACKENDS = ("fs", "fs_native", "resp", "s3")

RIGHT, MISS, WRONG, NO_ANSWER = "right", "miss", "WRONG", "no answer"
CONTENT = ("bit_flipped", "zeroed", "swapped")
"""Faults that leave an object its length, so that only its bytes tell."""
LENGTH = ("cut", "halved", "emptied")
ABSENT = ("lost",)
HARMLESS = ("late", "clock_moved")
NO_ANSWER_FROM = {("resp", "emptied"), ("resp", "lost_after_lookup")}
"""LMCache's client waits for bytes that never come (0.5.4 to 0.5.6), seals or not."""


def table(lmcache: LMCacheCopy, tmp: Path, backend: str, *more: str) -> list[dict[str, Any]]:
    """Run the cases of one backend; return the rows."""
    if backend == "resp" and not (shutil.which("redis-server") or shutil.which("valkey-server")):
        pytest.skip("no redis-server and no valkey-server is installed")
    if backend == "s3" and not PACKAGES:
        pytest.skip("KVSEAL_TEST_BACKEND_PACKAGES names no folder with moto")
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    if subprocess.run([PYTHON, "-c", probe], check=False).returncode:
        pytest.skip(f"{PYTHON} has no torch; KVSEAL_TEST_ENGINE_PYTHON may name one that has")
    out = tmp / "table.json"
    command = [PYTHON, str(ROOT / "bench/l2_faults.py"), "--backend", backend, "--out", str(out)]
    command += [word for folder in PACKAGES.split(os.pathsep) if folder
                for word in ("--packages", folder)]  # fmt: skip
    path = [lmcache.environment.site_packages, ROOT / "src", *filter(None, [PACKAGES])]
    done = subprocess.run(
        [*command, *more],
        env=lmcache.variables()
        | {"PYTHONPATH": os.pathsep.join(map(str, path)), "LMCACHE_LOG_LEVEL": "CRITICAL"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(out.read_text())
    assert document["lmcache"] == lmcache.version
    rows: list[dict[str, Any]] = document["rows"]
    return rows


@pytest.fixture(scope="module", params=BACKENDS)
def rows(
    request: pytest.FixtureRequest, lmcache: LMCacheCopy, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of one backend, by fault and seal."""
    lmcache.apply([codemod for codemod in CODEMODS if "lmcache" in codemod.versions])
    found = table(lmcache, tmp_path_factory.mktemp("faults"), request.param)
    return {(row["fault"], row["seal"]): row for row in found}


def test_no_fault_hands_on_wrong_bytes(rows: Any) -> None:
    sealed = [row for (_, seal), row in rows.items() if seal == "on" and "skipped" not in row]
    assert len(sealed) >= 13
    for row in sealed:
        assert WRONG not in row["chunks"], row
        assert row.get("ordinary") != WRONG, row
        if NO_ANSWER in row["chunks"]:
            assert (row["backend"], row["fault"]) in NO_ANSWER_FROM, row


def test_a_damaged_object_and_what_follows_is_a_miss(rows: Any) -> None:
    for fault in (*CONTENT, *LENGTH, *ABSENT):
        row = rows[fault, "on"]
        if (row["backend"], fault) in NO_ANSWER_FROM:
            assert row["chunks"] == [NO_ANSWER] * 3
        else:
            assert row["chunks"] == [RIGHT, MISS, MISS], row
    assert all(rows[fault, "on"]["refused"] == 1 for fault in CONTENT)
    assert rows["flipped_on_load", "on"]["chunks"] == [MISS] * 3


def test_without_seals_content_is_not_looked_at(rows: Any) -> None:
    for fault in CONTENT:
        assert rows[fault, "off"]["chunks"] == [RIGHT, WRONG, RIGHT]
    assert rows["flipped_on_load", "off"]["chunks"] == [WRONG] * 3


def test_what_is_late_or_has_another_time_is_right(rows: Any) -> None:
    for fault in HARMLESS:
        assert set(rows[fault, "on"]["chunks"]) == {RIGHT}


def test_of_two_writers_one_is_read_whole(rows: Any) -> None:
    assert set(rows["two_writers", "on"]["chunks"]) <= {RIGHT, MISS}
    assert RIGHT in rows["two_writers", "on"]["chunks"]


def test_a_store_that_got_full_or_went_away_misses_and_is_found_again(rows: Any) -> None:
    for fault in ("full", "gone"):
        row = rows[fault, "on"]
        if "skipped" in row:
            assert row["skipped"]
            continue
        assert MISS in row["chunks"]
        assert RIGHT in row["restarted"], row
