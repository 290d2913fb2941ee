# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvseal.codemods.environment import Environment
from kvseal.codemods.ledger import Ledger, remove_file, replace_file
from kvseal.errors import PatchError


def test_two_changers_are_kept_apart(environment: Environment) -> None:
    with (
        Ledger(environment).locked(),
        pytest.raises(PatchError, match="another kvseal") as caught,
        Ledger(environment).locked(timeout_seconds=0.1),
    ):
        pytest.fail("the lock was given twice")
    assert str(os.getpid()) in str(caught.value)
    with Ledger(environment).locked(timeout_seconds=0.1):
        pass


def test_a_damaged_record_is_refused(environment: Environment) -> None:
    ledger = Ledger(environment)
    ledger.folder.mkdir()
    for text in ("{", '{"schema": "other"}', "[]", '{"schema":"s","schema":"s"}'):
        ledger.record.write_text(text)
        with pytest.raises(PatchError, match="damaged"):
            ledger.load(ledger.record, "s")
    ledger.record.unlink()
    assert ledger.load(ledger.record, "s") is None


def test_blobs_are_found_by_digest_and_dropped_when_unused(environment: Environment) -> None:
    ledger = Ledger(environment)
    ledger.folder.mkdir()
    kept, dropped = ledger.put_blob(b"kept"), ledger.put_blob(b"dropped")
    assert ledger.put_blob(b"kept") == kept
    ledger.keep_only({kept})
    assert ledger.blob(kept) == b"kept"
    with pytest.raises(PatchError, match="missing or damaged"):
        ledger.blob(dropped)


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"old")

    def fail(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_removing_a_file_removes_the_folders_it_leaves_empty(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/keep").touch()
    (tmp_path / "a/b/file").touch()
    remove_file(tmp_path / "a/b/file", tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "keep"]
    remove_file(tmp_path / "a/keep", tmp_path)
    assert list(tmp_path.iterdir()) == []
