# SPDX-License-Identifier: Apache-2.0
"""A whole audit of a folder: document, verdict, text, and what it does with what it can't read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit import summary as summary_module
from kvseal.audit.classify import Found
from kvseal.audit.run import audit
from kvseal.audit.stores.fs import FolderStore
from kvseal.audit.text import console
from kvseal.audit.words import WORDS
from kvseal.errors import StoreError
from kvseal.records.schemas import load_schema

GOLDEN = Path(__file__).with_name("golden.txt")
MODEL = "org/model-1"
UNKNOWN = "q1abcdefghijklmnopqrstuvwxyz234567"


@pytest.fixture
def put(tmp_path: Path, file_name: Callable[..., str]) -> Callable[..., Path]:
    """Write an entry into the test's store; returns its file."""
    (tmp_path / "store").mkdir()

    def write(place: int, *, salt: str = "", variant: str = "", size: int = 100) -> Path:
        path = tmp_path / "store" / file_name(MODEL, place, salt, variant)
        path.write_bytes(b"k" * size)
        return path

    return write


@pytest.fixture
def run(tmp_path: Path, publish: Any, manifest: Any) -> Callable[..., dict[str, Any]]:
    """Audit the test's store with an index that lists the one known variant, without a salt."""
    publish(manifest())

    def call(**options: Any) -> dict[str, Any]:
        validate = pytest.importorskip("jsonschema", reason="documents need jsonschema").validate
        options = {"index": tmp_path / "index", **options}
        document = audit([FolderStore(tmp_path / "store")], **options)
        validate(document, load_schema("audit-result.v1"))
        console(document)
        return document

    return call


@pytest.fixture
def pair(put: Callable[..., Path], variant: str) -> dict[bool, Path]:
    """An ordinary entry, and under True one of the known variant."""
    return {False: put(1), True: put(2, variant=variant)}


def codes(document: dict[str, Any]) -> dict[str, int]:
    return {finding["code"]: finding["entries"] for finding in document["findings"]}


def test_ordinary_and_known_variants_pass(put: Any, run: Any, variant: str) -> None:
    put(1)
    put(2, salt="tenant-a")
    put(3, variant=variant)
    document = run(strict=True)
    assert document["verdict"] == "PASS"
    assert document["findings"] == []
    assert document["classes"]["ordinary"] == {"entries": 2, "size_bytes": 200}
    assert document["classes"]["variant"] == {"entries": 1, "size_bytes": 100}
    assert document["index"]["manifests_without_entries"] == 0


def renamed(old: str, new: str) -> Callable[[Path], Any]:
    return lambda path: path.rename(f"{path}".replace(old, new))


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("code", "of_variant", "damage"),
    [
        ("damaged.empty", True, lambda path: path.write_bytes(b"")),
        ("damaged.key-text", False, renamed("@0x01", "@0x1")),
        ("damaged.type", True, linked),
        ("forged.mark", False, renamed("@0x", "##tv2-@0x")),
        ("forged.mark", True, renamed("@0x01", "@0x1")),
        ("forged.request-local", True, renamed("-q1", "-r1")),
        ("forged.variant", True, renamed("-q1", "-z1")),
        ("forged.letter", True, renamed("-q1", "-p1")),
        ("forged.salt", False, renamed(".data", "@##tv1.data")),
    ],
)
def test_a_damaged_entry_fails(
    code: str, of_variant: bool, damage: Callable[[Path], Any], pair: dict[bool, Path], run: Any
) -> None:
    assert run()["verdict"] == "PASS"
    damage(pair[of_variant])
    document = run()
    assert (document["verdict"], codes(document)) == ("FAIL", {code: 1})
    assert document["findings"][0]["examples"]


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("orphaned.no-manifest", {"variant": UNKNOWN}),
        ("orphaned.other-tenant", {"variant": None, "salt": "tenant-b"}),
    ],
)
def test_an_orphan_fails_when_strict(
    code: str, entry: dict[str, Any], put: Any, run: Any, variant: str
) -> None:
    put(2, **{**entry, "variant": entry["variant"] or variant})
    document = run()
    assert (document["verdict"], codes(document)) == ("PASS", {code: 1})
    assert document["classes"]["orphaned"]["entries"] == 1
    assert run(strict=True)["verdict"] == "FAIL"


def test_what_is_no_entry_is_suspicious(put: Any, run: Any, tmp_path: Path) -> None:
    path = put(1)
    path.with_suffix(".tmp").touch()
    path.with_name(f"{path.name}.tmp").touch()
    (path.parent / "deep" / "er").mkdir(parents=True)
    (path.parent / "deep" / "er" / path.name).touch()
    (path.parent / "notes.txt").touch()
    os.mkfifo(path.parent / "pipe")
    (path.parent / "loop").symlink_to(tmp_path / "store")
    document = run()
    assert document["verdict"] == "PASS"
    assert codes(document) == {
        "suspicious.temporary": 3,
        "suspicious.unknown": 1,
        "suspicious.type": 2,
    }
    assert run(strict=True)["verdict"] == "FAIL"


def test_sizes_that_differ_within_a_variant(put: Any, run: Any, variant: str) -> None:
    for place in range(3):
        put(place, variant=variant)
    put(7, size=300)  # the ordinary entries' size is their own
    assert codes(run()) == {}
    put(3, variant=variant, size=60)
    document = run()
    assert codes(document) == {"suspicious.size": 1}
    assert document["findings"][0]["size_bytes"] == 60
    assert "1 not of 100 bytes" in document["findings"][0]["examples"][0]
    assert document["verdict"] == "PASS"


def test_an_ordinary_entry_for_a_variants_tokens(put: Any, run: Any, variant: str) -> None:
    put(1, variant=variant)
    put(1, salt="another")
    put(2)
    assert codes(run()) == {}
    path = put(1)
    document = run()
    assert codes(document) == {"suspicious.same-tokens": 1}
    assert path.name.split("@")[3][:16] in document["findings"][0]["examples"][0]


def test_without_an_index_variants_are_unjudged(put: Any, run: Any, variant: str) -> None:
    put(1, variant=variant)
    document = run(index=None)
    assert document["verdict"] == "PASS"
    assert document["classes"]["unjudged"]["entries"] == 1
    assert run(index=None, strict=True)["verdict"] == "INCONCLUSIVE"


def test_a_damaged_index_fails(put: Any, run: Any, publish: Any, manifest: Any) -> None:
    put(1)
    publish(manifest("prefix")).write_bytes(b"{}")
    document = run()
    assert (document["verdict"], codes(document)) == ("FAIL", {"damaged.index-digest": 1})
    assert document["findings"][0]["source"] is None


def test_nothing_at_all_shows_nothing(put: Any, run: Any) -> None:
    assert run()["verdict"] == "INCONCLUSIVE"


def test_salts_are_digests_until_asked_for(put: Any, run: Any) -> None:
    put(1, salt="secret-tenant")
    put(2, salt="secret-tenant", variant=UNKNOWN)
    put(3, salt="secret-tenant").with_suffix(".tmp").touch()
    hidden = run()
    assert "secret-tenant" not in f"{hidden}{console(hidden)}"
    shown = run(show_salts=True)
    assert {group["cache_salt"] for group in shown["groups"]} == {"secret-tenant"}
    assert "secret-tenant" in console(shown)


class Breaking:
    """A source that ends in an error after one forged entry."""

    kind, name, file_names = "fs", "/broken", True

    def __init__(self, *first: str) -> None:
        self.first = first

    def __iter__(self) -> Iterator[Found]:
        for name in self.first:
            yield Found(name, 1)
        raise StoreError("it broke")

    def read(self, found: Found, offset: int, size: int) -> bytes:
        return b""


def test_a_source_that_breaks_is_inconclusive_and_the_others_are_read(
    entries: Any, file_name: Any
) -> None:
    good = Found(file_name(MODEL, 1), 1)
    document = audit([Breaking(good.name), entries([good])])
    assert document["verdict"] == "INCONCLUSIVE"
    assert [source["error"] for source in document["sources"]] == ["it broke", None]
    assert [source["entries"] for source in document["sources"]] == [1, 1]
    assert "it broke" in console(document)


def test_what_was_found_counts_whatever_was_not_read(entries: Any) -> None:
    assert audit([Breaking("m##tv@0x01000100@0@aa.data")])["verdict"] == "FAIL"


def test_groups_beyond_the_limit_are_still_counted(
    entries: Any, file_name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_module, "MAX_GROUPS", 3)
    found = [Found(file_name(MODEL, place, f"salt-{place}"), 10) for place in range(8)]
    document = audit([entries(found)])
    assert document["entries"] == 8
    assert len(document["groups"]) == 3
    assert document["omitted"] == {
        "entries_without_group": 5,
        "size_bytes_without_group": 50,
        "entries_not_compared": 5,
    }
    assert "beyond the limits: 5 entries" in console(document)


def test_progress_is_told(entries: Any, file_name: Any) -> None:
    told: list[str] = []
    audit([entries([Found(file_name(MODEL, 1), 1)] * 2500)], tell=told.append)
    assert told == ["/store: 1,000 entries", "/store: 2,000 entries"]


def test_the_text_is_the_golden_one(
    entries: Any, file_name: Any, variant: str, publish: Any, manifest: Any
) -> None:
    index = publish(manifest()).parents[2]
    publish(manifest("prefix")).write_bytes(b"{}")
    size = 2 << 20
    names = [
        *(file_name(MODEL, place) for place in range(6)),
        *(file_name(MODEL, place, "tenant-a") for place in range(4)),
        *(file_name(MODEL, place, "", variant) for place in range(3, 7)),
        file_name(MODEL, 9, "tenant-a", UNKNOWN),
        file_name(MODEL, 9, "", "r" + UNKNOWN[1:]),
        "notes \x1b.txt",
    ]
    found = [Found(name, size) for name in names] + [Found(file_name(MODEL, 8), 1000)]
    document = audit([entries(found), Breaking()], index=index)
    text = console(document).replace(str(index.parent), "/data") + "\n"
    if os.environ.get("KVSEAL_TEST_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_every_code_has_words_and_stands_in_the_schema() -> None:
    properties = load_schema("audit-result.v1")["properties"]["findings"]["items"]["properties"]
    assert properties["code"]["enum"] == sorted(WORDS)
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
    for code in WORDS:
        assert f"`{code}`" in page
