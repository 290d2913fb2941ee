# SPDX-License-Identifier: Apache-2.0
"""Stores that are files: measured, emptied without leaving the folder, links not followed."""

from __future__ import annotations

from pathlib import Path

from kvseal.backends.added import copied
from kvseal.backends.folders import running_on


def test_a_folder_is_measured_and_emptied(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"12345")
    store = tmp_path / "store"
    running = running_on(store, {"type": "fs"})
    (store / "a.data").write_bytes(b"123")
    (store / "deeper").mkdir()
    (store / "deeper/b.data").write_bytes(b"1234")
    assert running.size() == 7
    (store / "link").symlink_to(outside)
    running.wipe()
    assert list(store.iterdir()) == []
    assert (outside / "kept").read_bytes() == b"12345"


def test_what_runs_elsewhere_is_copied_whole_and_imports_no_kvseal(tmp_path: Path) -> None:
    for module in ("kvseal_l2_plugins", "moto_s3", "lmcache_rust_raw_block_io"):
        path = copied(module, tmp_path / "made")
        assert path.name == f"{module}.py"
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line.startswith(("import kvseal", "from kvseal"))]
