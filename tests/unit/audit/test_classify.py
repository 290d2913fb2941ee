# SPDX-License-Identifier: Apache-2.0
"""Every name has exactly one class, and each forgery and damage its own code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.audit.classify import Class, Found, Judgement, Shape, judge
from kvseal.audit.words import WORDS

V = "1abcdefghijklmnopqrstuvwxyz234567"
REST = "@0x01000100@0@aabb"


class Index:
    """An index that answers every question in the same way."""

    def __init__(self, code: str) -> None:
        self.code = code

    def trouble(self, variant: str, cache_salt: str) -> str:
        return self.code


def judged(name: str, size: int = 1, shape: Shape = Shape.ENTRY, code: str = "") -> Judgement:
    return judge(Found(name, size, shape), file_names=True, manifests=Index(code))


def native(name: str) -> Judgement:
    return judge(Found(name, 1), file_names=False, manifests=Index(""))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (f"m{REST}.data", ""),
        (f"m##query{REST}@tenant.data", ""),
        (f"m##lmcache-dcp-layout-v1-2{REST}.data", ""),
        (f"m##tv1-q{V}{REST}.data", ""),
        (f"m##query##tv1-p{V}{REST}@t.data", ""),
        (f"m##tv1-r{V}{REST}.data", "forged.request-local"),
        (f"m##tv1-x{V}{REST}.data", "forged.variant"),
        (f"m##tv1-q2{V[1:]}{REST}.data", "forged.variant"),
        (f"m##tv1-q{V[:-1]}{REST}.data", "forged.variant"),
        (f"m##tv1-q{V[:-1]}1{REST}.data", "forged.variant"),
        (f"m##tv1-Q{V}{REST}.data", "forged.variant"),
        (f"m##tv1-{REST}.data", "forged.variant"),
        (f"m##tv1-q{V}##query{REST}.data", "forged.variant"),
        (f"m##tv1-q{V}##tv1-q{V}{REST}.data", "forged.mark"),
        (f"m##TV1-q{V}{REST}.data", "forged.mark"),
        (f"m##tv2-q{V}{REST}.data", "forged.mark"),
        (f"m##tv{REST}.data", "forged.mark"),
        (f"##tv1-q{V}{REST}.data", "forged.mark"),
        (f"m##tv1-q{V}@0x01000100@0@aab.data", "forged.mark"),
        ("notes on ##tv1.txt", "forged.mark"),
        (f"m{REST}@##tv1-q{V}.data", "forged.salt"),
        (f"m##tv1-q{V}{REST}@##Tv.data", "forged.salt"),
        (f"m##tv1-r{V}{REST}.tmp", "forged.request-local"),
        ("m@0x1@0@aabb.data", "damaged.key-text"),
        (f"m{REST}@a@b.data", "damaged.key-text"),
        ("m@x.data", "damaged.key-text"),
        ("m\udcff@0x01000100@0@aabb.data", "damaged.key-text"),
        (f"m{REST}.tmp", "suspicious.temporary"),
        (f"m{REST}.data.tmp", "suspicious.temporary"),
        (f"m##tv1-q{V}{REST}.tmp", "suspicious.temporary"),
        (f"m{REST}", "suspicious.unknown"),
        ("half.tmp", "suspicious.unknown"),
        ("x.data", "suspicious.unknown"),
        ("README", "suspicious.unknown"),
    ],
)
def test_each_name_has_its_code(name: str, code: str) -> None:
    found = judged(name)
    assert found.code == code
    assert found.kind.value == (code.partition(".")[0] or found.kind.value)
    if not code:
        assert found.kind is (Class.VARIANT if "##tv" in name else Class.ORDINARY)
        assert found.key is not None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a/b@01000100@0@aabb", ""),
        (f"a/b##tv1-g{V}@01000100@0@aabb@t", ""),
        (f"a/b##tv1-r{V}@01000100@0@aabb@t", "forged.request-local"),
        ("a/b@0x01000100@0@aabb", "damaged.key-text"),
        ("prefix@a/b@01000100@0@aabb", "damaged.key-text"),
        ("session:1", "suspicious.unknown"),
        ("user@host", "suspicious.unknown"),
    ],
)
def test_native_texts(name: str, code: str) -> None:
    assert native(name).code == code


def test_model_variant_and_key_are_told_apart() -> None:
    found = judged(f"org-SEP-m##query##tv1-q{V}{REST}@t.data")
    assert (found.model, found.variant) == ("org/m##query", f"q{V}")
    assert found.key is not None and found.key.cache_salt == "t"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("orphaned.no-manifest", Class.ORPHANED),
        ("orphaned.other-tenant", Class.ORPHANED),
        ("forged.letter", Class.FORGED),
    ],
)
def test_the_index_decides_on_a_variant(code: str, kind: Class) -> None:
    found = judged(f"m##tv1-q{V}{REST}.data", code=code)
    assert (found.kind, found.code) == (kind, code)
    assert judged(f"m{REST}.data", code=code).kind is Class.ORDINARY


def test_without_an_index_a_variant_is_unjudged() -> None:
    found = judge(Found(f"m##tv1-q{V}{REST}.data", 1), file_names=True, manifests=None)
    assert (found.kind, found.code) == (Class.UNJUDGED, "")


@pytest.mark.parametrize(
    ("name", "size", "shape", "code"),
    [
        (f"m{REST}.data", 0, Shape.ENTRY, "damaged.empty"),
        (f"m##tv1-q{V}{REST}.data", 0, Shape.ENTRY, "damaged.empty"),
        ("README", 0, Shape.ENTRY, "suspicious.unknown"),
        (f"m{REST}.data", 0, Shape.NO_BYTES, "damaged.type"),
        ("README", 0, Shape.NO_BYTES, "suspicious.type"),
        (f"m{REST}.data", 5, Shape.BELOW, "suspicious.temporary"),
        ("README", 5, Shape.BELOW, "suspicious.unknown"),
        (f"m##tv1-r{V}{REST}.data", 5, Shape.BELOW, "forged.request-local"),
        (f"m##tv1-r{V}{REST}.data", 0, Shape.NO_BYTES, "forged.request-local"),
        (f"m##tv1-r{V}{REST}.data", 0, Shape.ENTRY, "forged.request-local"),
    ],
)
def test_what_a_thing_is_decides_as_well(name: str, size: int, shape: Shape, code: str) -> None:
    assert judged(name, size, shape).code == code


pieces = st.sampled_from(
    ["m", "@", "##tv", "##tv1-", f"q{V}", f"r{V}", "##query", REST, ".data", ".tmp", "-SEP-", "\0"]
)


@given(
    name=st.text() | st.lists(pieces | st.text(max_size=3), max_size=9).map("".join),
    size=st.integers(0, 2),
    shape=st.sampled_from(Shape),
    file_names=st.booleans(),
    code=st.sampled_from([None, "", "orphaned.no-manifest", "forged.letter"]),
)
def test_every_name_has_one_class_and_never_raises(
    name: str, size: int, shape: Shape, file_names: bool, code: str | None
) -> None:
    index = None if code is None else Index(code)
    found = judge(Found(name, size, shape), file_names=file_names, manifests=index)
    assert found.kind in Class
    in_order = found.kind in (Class.ORDINARY, Class.VARIANT, Class.UNJUDGED)
    assert in_order == (found.code == "")
    if found.code:
        assert found.code in WORDS
        assert found.code.startswith(f"{found.kind.value}.")
    if "##tv" in name.lower() and found.kind is Class.ORDINARY:
        pytest.fail("what holds a mark is never ordinary")


@given(name=st.binary(max_size=60))
def test_bytes_of_any_kind_are_judged(name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    for file_names in (True, False):
        judge(Found(text, 1), file_names=file_names, manifests=None)
