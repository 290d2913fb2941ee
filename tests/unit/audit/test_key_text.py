# SPDX-License-Identifier: Apache-2.0
"""Key texts agree with LMCache's own, and nothing but these is a key text."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.audit.key_text import KeyText, is_text, parse_fs, parse_native, write_fs, write_native

GOLDEN = Path(__file__).parents[2] / "vectors" / "lmcache-key-texts"
VERSIONS = ("0.5.4", "0.5.6")
FORMS = ((write_native, parse_native), (write_fs, parse_fs))

text = st.text(st.characters(exclude_characters="@/\\\0", exclude_categories=["Cs"]), min_size=1)
models = st.lists(text, min_size=1).map("/".join).filter(lambda name: "-SEP" not in name)
keys = st.builds(
    KeyText,
    model_name=models,
    kv_rank=st.integers(0, 2**40),
    object_group_id=st.integers(0, 2**20),
    chunk_hash=st.binary(min_size=1, max_size=48).map(bytes.hex),
    cache_salt=st.just("") | text.map(lambda salt: salt[:128]),
)


def golden(version: str) -> list[dict[str, Any]]:
    made = json.loads((GOLDEN / f"{version}.json").read_text("utf-8"))
    assert made["lmcache"] == version
    assert len(made["keys"]) >= 8
    return made["keys"]


@pytest.mark.parametrize("version", VERSIONS)
def test_texts_are_those_of_the_published_lmcache(version: str) -> None:
    for entry in golden(version):
        key = KeyText(*entry["key"])
        assert write_fs(key) == entry["fs"]
        assert write_native(key) == entry["native"] == entry["s3"]
        assert parse_fs(entry["fs"]) == key
        assert parse_native(entry["native"]) == key


def test_texts_are_those_of_the_installed_lmcache() -> None:
    api = pytest.importorskip("lmcache.v1.distributed.api", reason="LMCache: engine environment")
    from lmcache.v1.distributed.l2_adapters import fs_l2_adapter as fs
    from lmcache.v1.distributed.l2_adapters import native_connector_l2_adapter as native

    for model, rank, group, digits, salt in (entry["key"] for entry in golden("0.5.6")):
        made = api.ObjectKey(bytes.fromhex(digits), model, rank, group, salt)
        key = KeyText(model, rank, group, digits, salt)
        assert fs._object_key_to_filename(made) == write_fs(key)
        assert native._object_key_to_string(made) == write_native(key)


@pytest.mark.parametrize(("write", "parse"), FORMS)
@given(key=keys)
def test_what_is_written_is_read_again(write: Any, parse: Any, key: KeyText) -> None:
    assert parse(write(key)) == key


@pytest.mark.parametrize(("write", "parse"), FORMS)
@given(name=st.text())
def test_what_is_read_is_what_was_written(write: Any, parse: Any, name: str) -> None:
    key = parse(name)
    assert key is None or write(key) == name


@given(
    place=st.integers(0, 200), character=st.sampled_from(string.printable + "é"), cut=st.booleans()
)
def test_a_changed_text_is_another_key_or_none(place: int, character: str, cut: bool) -> None:
    name = golden("0.5.4")[1]["fs"]
    place %= len(name)
    changed = name[:place] + ("" if cut else character) + name[place + 1 :]
    key = parse_fs(changed)
    assert changed == name or key is None or key != parse_fs(name)


@pytest.mark.parametrize(
    "name",
    [
        "m@0x1000100@0@aabb.data",
        "m@0x01000100@00@aabb.data",
        "m@0x01000100@0@AABB.data",
        "m@0x0100010A@0@aabb.data",
        "m@0x01000100@0@aab.data",
        "m@0x01000100@0@.data",
        "m@0x01000100@0@aabb@.data",
        "m@0x01000100@0@aabb@a@b.data",
        f"m@0x01000100@0@aabb@{'s' * 129}.data",
        "m@0x01000100@0@aabb@a\\b.data",
        "m@01000100@0@aabb.data",
        "@0x01000100@0@aabb.data",
        "m@0x01000100@-1@aabb.data",
        "m@0x001000100@0@aabb.data",
        "m@0x01000100@0@aabb",
        "m@0x01000100@0@aabb.data\n",
        "m\udcff@0x01000100@0@aabb.data",
    ],
)
def test_what_lmcache_can_not_have_written_is_no_key(name: str) -> None:
    assert parse_fs(name) is None
    native = name.replace("0x", "").removesuffix(".data")
    if "0x" in name and name.endswith(".data"):
        assert parse_native(native) is None


def test_two_models_that_share_one_file_name_are_one() -> None:
    assert write_fs(KeyText("a-SEP-b", 0, 0, "00", "")) == write_fs(KeyText("a/b", 0, 0, "00", ""))


def test_bytes_that_are_no_utf_8_are_no_text() -> None:
    assert is_text("é")
    assert not is_text(b"\xff".decode("utf-8", "surrogateescape"))
