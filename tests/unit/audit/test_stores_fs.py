# SPDX-License-Identifier: Apache-2.0
"""The folder reader: what is where, what comes and goes meanwhile, and what can't be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit.classify import Found, Shape
from kvseal.audit.stores.fs import FolderStore
from kvseal.errors import OptionError, StoreError


def test_files_below_and_other_things_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"kv")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b").write_bytes(b"kvk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "to-folder").symlink_to(tmp_path / "deep")
    os.mkfifo(tmp_path / "pipe")
    assert set(FolderStore(tmp_path)) == {
        Found("a", 2),
        Found("b", 3, Shape.BELOW),
        Found("link", 0, Shape.NO_BYTES),
        Found("to-folder", 0, Shape.NO_BYTES),
        Found("pipe", 0, Shape.NO_BYTES),
    }


def test_a_name_of_odd_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"kv")
    (found,) = FolderStore(tmp_path)
    assert found.name == "\udcff"
    assert FolderStore(tmp_path).read(found, 0, 9) == b"kv"


def test_parts_are_read_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    store = FolderStore(tmp_path)
    assert store.read(Found("a", 10), 3, 4) == b"3456"
    assert store.read(Found("a", 10), 8, 4) == b"89"
    assert store.read(Found("gone", 1), 0, 1) == b""
    with pytest.raises(StoreError, match="can't be read"):
        store.read(Found("link", 10), 0, 1)


def test_what_goes_meanwhile_is_no_error(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    (tmp_path / "deep").mkdir()
    walk = iter(FolderStore(tmp_path))
    first = next(walk)
    for name in {"a", "b"} - {first.name}:
        (tmp_path / name).unlink()
    (tmp_path / "deep").rmdir()
    assert list(walk) == []


def test_a_store_that_is_gone_or_closed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store = FolderStore(folder)
    folder.rmdir()
    with pytest.raises(StoreError, match="it is gone"):
        list(store)

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kvseal.audit.stores.fs.os.scandir", refuse)
    with pytest.raises(StoreError, match="Permission denied"):
        list(FolderStore(tmp_path))


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(OptionError, match="no such folder"):
            FolderStore(tmp_path / name)
