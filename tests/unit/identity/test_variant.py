# SPDX-License-Identifier: Apache-2.0
"""Variant texts and decorated names: one text for each value, and no half-understood one."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.errors import EvidenceError, OptionError
from kvseal.identity import (
    TransformManifest,
    check_unmarked,
    check_variant,
    decorate,
    parse_server_model_name,
    parse_variant,
    server_model_name,
    split,
)
from kvseal.identity.scope import LETTERS
from kvseal.identity.variant import variant_text

KINDS = st.sampled_from(sorted(LETTERS))
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
GOOD = "q1" + "abcdefghijklmnopqrstuvwxyz234567"
# Text near the mark: what an attacker or a careless caller would try.
PIECES = st.sampled_from(
    ["#", "##", "##t", "##tv", "##tv1", "##tv1-", "##TV1-", "tv1-", GOOD, GOOD[:-1], "##query",
     "@", "/", "-SEP-", "m", "é", "日本", "\U0001f600", "r1", ""]
)  # fmt: skip
NAMES = st.lists(PIECES | st.text(max_size=3), max_size=6).map("".join)
VARIANTS = st.just("") | st.builds(variant_text, KINDS, DIGESTS)


@given(KINDS, DIGESTS)
def test_a_variant_reads_back(kind: str, digest: str) -> None:
    text = variant_text(kind, digest)
    assert len(text) == 34
    assert parse_variant(text) == (kind, digest[:40])
    # Both ways: whatever holds the same bits has the same text, and no other.
    assert variant_text(kind, parse_variant(text).digest + "0" * 24) == text


@given(KINDS, DIGESTS, st.integers(0, 159))
def test_every_one_of_160_bits_counts(kind: str, digest: str, bit: int) -> None:
    other = f"{int(digest, 16) ^ 1 << 255 - bit:064x}"
    assert variant_text(kind, other) != variant_text(kind, digest)


@given(DIGESTS)
def test_every_scope_has_a_text_of_its_own(digest: str) -> None:
    assert len({variant_text(kind, digest) for kind in LETTERS}) == 4


@given(
    st.sampled_from("rqpg"), st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=32, max_size=32)
)
def test_every_well_formed_text_is_the_text_of_its_bits(letter: str, bits: str) -> None:
    parsed = parse_variant(f"{letter}1{bits}")
    assert variant_text(parsed.scope, parsed.digest + "f" * 24) == f"{letter}1{bits}"


@pytest.mark.parametrize(
    "text",
    ["", "q", GOOD[:-1], GOOD + "a", GOOD + "=", GOOD + "\n", "\n" + GOOD, " " + GOOD[1:],
     GOOD.upper(), "Q" + GOOD[1:], "q2" + GOOD[2:], "q0" + GOOD[2:], "x1" + GOOD[2:],
     "1q" + GOOD[2:], "qq" + GOOD[2:], GOOD[:-1] + "1", GOOD[:-1] + "8", GOOD[:-1] + "=",
     GOOD[:-1] + "A", GOOD[:-1] + "é", GOOD[:-1] + "ａ", GOOD[:-1] + "\n", "rq1" + GOOD[3:],
     "##tv1-" + GOOD, None, 1, b"q1" + GOOD[2:].encode(), ["q", "1"], list(GOOD)],
    ids=repr,
)  # fmt: skip
def test_what_is_no_variant_is_refused(text: Any) -> None:
    with pytest.raises(EvidenceError):
        parse_variant(text)
    if text != "":
        with pytest.raises(EvidenceError):
            decorate("m", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("x1" + GOOD[2:], "unknown scope"), ("q2" + GOOD[2:], "unknown version"), ("q", "malformed")],
)
def test_the_refusal_says_why_and_where(text: str, message: str) -> None:
    with pytest.raises(EvidenceError, match=message) as caught:
        parse_variant(text, at="source.parent")
    assert caught.value.option == "source.parent"


@pytest.mark.parametrize(("kind", "digest"), [("x", "a" * 64), ("prefix", "a" * 63), ("", "")])
def test_no_variant_of_nonsense(kind: str, digest: str) -> None:
    with pytest.raises(EvidenceError):
        variant_text(kind, digest)


def test_a_manifest_is_held_to_the_variant_asked_for(
    vectors: dict[str, dict[str, Any]], document: Callable[..., dict[str, Any]]
) -> None:
    manifest = TransformManifest.from_json(document())
    check_variant(vectors["query-scoped"]["variant"], manifest)
    for other in (
        vectors["request-local"]["variant"],
        "r" + vectors["query-scoped"]["variant"][1:],
        vectors["query-scoped"]["variant"][:-1] + "a",
        GOOD,
    ):
        with pytest.raises(EvidenceError, match="not that of the variant"):
            check_variant(other, manifest)
    for malformed in ("", "q1"):
        with pytest.raises(EvidenceError, match="malformed"):
            check_variant(malformed, manifest)


@given(NAMES, VARIANTS)
def test_a_name_is_refused_or_reads_back(name: str, variant: str) -> None:
    try:
        decorated = decorate(name, variant)
    except OptionError as error:
        assert "##tv" in name.lower()
        assert error.option == "model name"
    else:
        assert "##tv" not in name.lower()
        assert split(decorated) == (name, variant)
        assert (decorated == name) == (variant == "")


@given(NAMES)
def test_a_text_is_refused_or_decorates_back(name: str) -> None:
    try:
        model, variant = split(name)
    except EvidenceError:
        assert "##tv" in name.lower(), "an ordinary name is never refused"
    else:
        assert decorate(model, variant) == name
        assert (variant == "") == ("##tv" not in name.lower()), "never taken for ordinary"


@given(NAMES.filter(lambda name: "##tv" not in name.lower()), st.booleans(), VARIANTS)
def test_queries_and_variants_go_together(model: str, query: bool, variant: str) -> None:
    try:
        name = server_model_name(model, variant, query=query)
    except OptionError:
        assert model.endswith("##query")
    else:
        assert parse_server_model_name(name) == (model, variant, query)


def test_the_names_that_are_written() -> None:
    assert decorate("org/model", "") == "org/model"
    assert decorate("org/model", GOOD) == f"org/model##tv1-{GOOD}"
    assert server_model_name("m", "", query=True) == "m##query"
    assert server_model_name("m", GOOD, query=True) == f"m##query##tv1-{GOOD}"
    assert split(f"m##lmcache-dcp-layout-v1-d2-interleave16##tv1-{GOOD}") == (
        "m##lmcache-dcp-layout-v1-d2-interleave16", GOOD
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        f"m##tv1-{GOOD}##query", f"m##tv1-{GOOD}##tv1-{GOOD}", f"m##TV1-{GOOD}", f"m##tv2-{GOOD}",
        f"m##tv{GOOD}", "m##tv", "m##tv1-", f"m##tv1-{GOOD[:-1]}", f"m##tv1-{GOOD}x",
        f"m##tv1-x1{GOOD[2:]}", f"m##tv1-q2{GOOD[2:]}", f"m##tv1_{GOOD}", f"##tv1-##tv1-{GOOD}",
        f"m##tV9##tv1-{GOOD}", f"m##tv1-{GOOD.upper()}", f"m##tv1-{GOOD} ", f"m##tv1-\n{GOOD[1:]}",
    ],
)  # fmt: skip
def test_a_malformed_mark_is_never_ordinary(name: str) -> None:
    for read in (split, parse_server_model_name):
        with pytest.raises(EvidenceError, match=r"malformed|unknown"):
            read(name)
    for variant in ("", GOOD):
        with pytest.raises(OptionError, match="reserved"):
            decorate(name, variant)


@pytest.mark.parametrize("what", ["cache salt", "LoRA name", "model name"])
@pytest.mark.parametrize("text", [f"##tv1-{GOOD}", "a##tv", "##TV1-", "x##Tv9", f"m##tv1-{GOOD}b"])
def test_the_mark_is_refused_at_the_edge(what: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_unmarked(what, text)
    assert caught.value.option == what
    assert caught.value.value == text


@pytest.mark.parametrize("text", ["", GOOD, "tv1-" + GOOD, "#tv1-", "##t", "# #tv", "##query", "é"])
def test_what_is_no_mark_is_nobody_s_business(text: str) -> None:
    check_unmarked("cache salt", text)
    assert split(text) == (text, "")
    assert decorate(text, "") == text


@pytest.mark.parametrize("name", [f"m##TV1-{GOOD}", f"m##tv2-{GOOD}", "##tv", "m##tv"])
def test_the_refusal_of_a_mark_shows_the_whole_name(name: str) -> None:
    with pytest.raises(EvidenceError, match="malformed mark") as caught:
        split(name)
    assert caught.value.value == name


def test_queries_of_queries_are_refused() -> None:
    with pytest.raises(OptionError, match="queries"):
        server_model_name("m##query", "", query=False)
    for name in ("m##query##query", f"m##query##query##tv1-{GOOD}"):
        with pytest.raises(EvidenceError, match="queries"):
            parse_server_model_name(name)


def test_names_are_safe_in_file_names_and_key_texts() -> None:
    # What LMCache's L2 adapters separate fields with, and what file systems mind.
    allowed = set(string.ascii_lowercase + string.digits + "#-")
    assert set(decorate("", GOOD)) <= allowed
    assert "-SEP-" not in decorate("", GOOD)
