# SPDX-License-Identifier: Apache-2.0
"""`kvseal audit`: its options, exit statuses, and where the document may go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvseal.cli import main

ORDINARY = "m@0x01000100@0@aabb@secret.data"
FORGED = "m##tv@0x01000100@0@aabb.data"
ORPHAN = "m##tv1-q1abcdefghijklmnopqrstuvwxyz234567@0x01000100@0@aabb.data"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / ORDINARY).write_bytes(b"kv")
    (tmp_path / "index").mkdir()
    return folder


def test_a_good_store_passes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--fs", str(store)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS  1 entries, none out of order")
    assert "secret" not in out
    assert main(["audit", "--fs", str(store), "--salts"]) == 0
    assert "secret" in capsys.readouterr().out


def test_a_forged_name_fails(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / FORGED).write_bytes(b"kv")
    assert main(["audit", "--fs", str(store)]) == 1
    assert capsys.readouterr().out.startswith("FAIL  1 that must not be there, among 2 entries")


def test_an_orphan_fails_when_strict(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / ORPHAN).write_bytes(b"kv")
    options = ["audit", "--fs", str(store), "--index", str(tmp_path / "index")]
    assert main(options) == 0
    assert main([*options, "--strict"]) == 1
    assert main(["audit", "--fs", str(store), "--strict"]) == 2
    assert "were not looked up" in capsys.readouterr().out


def test_no_entry_at_all_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--fs", str(tmp_path)]) == 2
    assert "no entry at all" in capsys.readouterr().out


def test_several_folders_and_a_document(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "audit.json"
    options = ["audit", "--fs", str(store), "--fs", str(tmp_path / "index"), "--json"]
    assert main([*options, "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text("utf-8")) == printed
    assert [source["entries"] for source in printed["sources"]] == [1, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "nothing to audit"),
        (["--index", "{tmp}/index"], "nothing to audit"),
        (["--fs", "{tmp}/none"], "no such folder"),
        (["--fs", "{tmp}/store", "--index", "{tmp}/none"], "no variant index"),
        (["--s3", "http://127.0.0.1:1"], "go together"),
        (["--fs", "{tmp}/store", "--bucket", "b"], "go together"),
        (["--fs", "{tmp}/store", "--resp-prefix", "p"], "prefix without a server"),
        (["--resp", "127.0.0.1"], "no address"),
        (["--resp", "127.0.0.1:0"], "no address"),
        (["--resp", "h:1", "--resp-prefix", "a@b"], "no prefix"),
        (["--fs", "{tmp}/store", "--out", "{tmp}/store/x.json"], "writes nothing into"),
        (["--fs", "{tmp}/store", "--index", "{tmp}/index", "--out", "{tmp}/index/x"], "writes not"),
        (["--fs", "{tmp}/store", "--out", "{tmp}/none/x.json"], "can't be written"),
        (["--fs", "{tmp}/store", "--out", "{tmp}"], "can't be written"),
    ],
)
def test_options_that_can_not_be(
    options: list[str], text: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *(option.format(tmp=tmp_path) for option in options)]) == 2
    assert text in capsys.readouterr().err
    assert sorted(path.name for path in store.iterdir()) == [ORDINARY]


def test_a_link_into_the_store_is_no_way_to_write_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(store)
    assert main(["audit", "--fs", str(store), "--out", str(tmp_path / "link" / "x")]) == 2
    assert "writes nothing into" in capsys.readouterr().err


def test_a_missing_package_says_where_to_run(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    credentials = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    cases: list[tuple[str, list[Any]]] = [
        ("redis", ["--resp", "127.0.0.1:1"]),
        ("awscrt", ["--s3", "http://127.0.0.1:1", "--bucket", "kv0"]),
        ("blake3", ["--fs", str(store), "--payload"]),
    ]
    for package, options in cases:
        monkeypatch.setitem(sys.modules, package, None)
        assert main(["audit", *options]) == 2
        error = capsys.readouterr().err
        assert package in error
        assert "engine environment" in error
