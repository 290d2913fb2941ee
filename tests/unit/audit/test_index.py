# SPDX-License-Identifier: Apache-2.0
"""The index is verified entry by entry; what is wrong is reported and gives no variant."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit.index import VariantManifests, read_index
from kvseal.errors import OptionError, StoreError

Reports = list[tuple[str, str]]


@pytest.fixture
def read(tmp_path: Path) -> Callable[[], tuple[VariantManifests, Reports]]:
    """Read the test's index; returns it and what was reported."""

    def run() -> tuple[VariantManifests, Reports]:
        reports: Reports = []
        found = read_index(tmp_path / "index", lambda code, at, size: reports.append((code, at)))
        return found, reports

    return run


def test_a_manifest_is_known_to_its_tenant_alone(
    manifest: Any, variant: str, publish: Any, read: Any
) -> None:
    publish(manifest(), "tenant-a")
    found, reports = read()
    assert reports == []
    assert (found.count, found.unused) == (1, 1)
    assert found.trouble(variant, "tenant-b") == "orphaned.other-tenant"
    assert found.trouble(variant, "") == "orphaned.other-tenant"
    assert found.unused == 1
    assert found.trouble(variant, "tenant-a") == ""
    assert found.unused == 0


def test_another_letter_for_its_bits_is_a_forgery(
    manifest: Any, variant: str, publish: Any, read: Any
) -> None:
    publish(manifest())
    found, _ = read()
    assert variant[0] == "q"
    assert found.trouble("p" + variant[1:], "") == "forged.letter"
    assert found.trouble("q1" + "a" * 32, "") == "orphaned.no-manifest"


def test_wide_scopes_are_known_without_their_proof(manifest: Any, publish: Any, read: Any) -> None:
    from kvseal.identity.variant import variant_text

    for name in ("prefix", "global"):
        known = manifest(name)
        publish(known)
        found, reports = read()
        assert reports == []
        assert found.trouble(variant_text(known.scope.kind, known.digest), "") == ""


def damaged(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    return "damaged.index-digest"


def renamed(path: Path) -> str:
    path.rename(path.with_name(f"{'0' * 64}.json"))
    return "damaged.index-digest"


def cut_off(path: Path) -> str:
    path.write_bytes(b"")
    return "damaged.index-digest"


def other_recipe(path: Path) -> str:
    path.parent.rename(path.parent.with_name("1" * 64))
    return "damaged.index-recipe"


@pytest.mark.parametrize("damage", [damaged, renamed, cut_off, other_recipe])
def test_a_damaged_entry_is_reported_and_gives_no_variant(
    damage: Callable[[Path], str], manifest: Any, variant: str, publish: Any, read: Any
) -> None:
    code = damage(publish(manifest()))
    found, reports = read()
    assert [code for code, _ in reports] == [code]
    assert found.count == 0
    assert found.trouble(variant, "") == "orphaned.no-manifest"


def write_as(publish: Any, manifest: Any, data: bytes) -> None:
    import hashlib

    path = publish(manifest)
    path.write_bytes(data)
    path.rename(path.with_name(f"{hashlib.sha256(data).hexdigest()}.json"))


@pytest.mark.parametrize("data", [b"{}", b"no JSON", b"\xff", b"[" * 5000, b"null"])
def test_bytes_of_the_right_digest_that_are_no_manifest(
    data: bytes, manifest: Any, publish: Any, read: Any
) -> None:
    write_as(publish, manifest(), data[:4095])
    found, reports = read()
    assert [code for code, _ in reports] == ["damaged.index-manifest"]
    assert found.count == 0


def test_a_manifest_in_another_form_is_none(manifest: Any, publish: Any, read: Any) -> None:
    write_as(publish, manifest(), manifest().canonical_bytes + b"\n")
    found, reports = read()
    assert [code for code, _ in reports] == ["damaged.index-manifest"]
    assert found.count == 0


def test_a_request_local_manifest_is_a_forgery(manifest: Any, publish: Any, read: Any) -> None:
    publish(manifest("request-local"))
    found, reports = read()
    assert [code for code, _ in reports] == ["forged.index-request-local"]
    assert found.count == 0


def test_foreign_files_links_and_halves_are_reported(
    manifest: Any, publish: Any, read: Any, tmp_path: Path
) -> None:
    path = publish(manifest())
    (tmp_path / "index" / "notes").touch()
    (path.parent.parent / "x").mkdir()
    (path.parent / "y.json").touch()
    (path.parent / ".0123.tmp").touch()
    (path.parent / f"{'a' * 64}.json").symlink_to(path)
    (path.parent / ".nfs0001").touch()
    os.mkfifo(path.parent / f"{'b' * 64}.json")
    found, reports = read()
    assert [code for code, _ in reports] == ["suspicious.index-file"] * 6
    assert found.count == 1


def test_more_variants_than_a_server_accepts(manifest: Any, publish: Any, read: Any) -> None:
    path = publish(manifest())
    for place in range(64):
        (path.parent / f"{place:064x}.json").touch()
    assert ("damaged.index-crowded", f"{path.parent.parent.name}/{path.parent.name}") in read()[1]


def test_no_index_is_a_bad_option(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no variant index"):
        read_index(tmp_path / "none", lambda *_: None)


def test_an_index_that_can_not_be_read_is_no_empty_one(
    manifest: Any, publish: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(manifest())

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kvseal.audit.index.os.open", refuse)
    with pytest.raises(StoreError, match="Permission denied"):
        read()
