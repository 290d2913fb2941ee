# SPDX-License-Identifier: Apache-2.0
"""No damaged manifest is read, and the published schema is no more lenient than the parser."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.errors import EvidenceError
from kvseal.identity import TransformManifest
from kvseal.records.schemas import load_schema

SCHEMA = jsonschema.Draft202012Validator(load_schema("transform-manifest.v1"))
FREE = ("parameters", "format.rope.scaling")
"""Objects with names of their own: nothing is missing or unknown there."""
WRONG: list[Any] = [
    None, True, False, 0, -1, 1.5, 1.0, 2**32, 2**53, -(2**53), 10**30, "", "x", "A" * 64, "a" * 63,
    "a" * 65, "a" * 64 + "\n", "r1" + "A" * 32, "r1" + "a" * 32 + "\n", "\x00", "a\nb", "x" * 257,
    "\x1f", "\x7f", "\x9f",
    "\x85", [], {}, [1], {"a": 1}, [["a", 1]], "-0", "1.0", "01", "1e3", "+1", ".5", "1.", "NaN",
    "10000\n", "sha256:" + "a" * 63, "sha256:" + "A" * 64, "True", "٣",
]  # fmt: skip


def objects(value: Any, at: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        yield value, at
        for key, item in value.items():
            yield from objects(item, f"{at}.{key}".lstrip("."))


def refused(text: str | bytes) -> EvidenceError:
    with pytest.raises(EvidenceError) as caught:
        TransformManifest.parse(text)
    assert str(caught.value), "a refusal says what is wrong"
    return caught.value


@pytest.fixture
def whole(document: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return document("unicode")


def test_each_field_left_out_is_named(document: Callable[[str], dict[str, Any]]) -> None:
    seen = 0
    for _, at in list(objects(document("query-scoped"))):
        for key in next(value for value, place in objects(document("query-scoped")) if place == at):
            if at in FREE:
                continue
            whole = document("query-scoped")
            del next(value for value, place in objects(whole) if place == at)[key]
            path = f"{at}.{key}".lstrip(".")
            assert refused(json.dumps(whole)).option == path
            assert not SCHEMA.is_valid(whole), path
            seen += 1
    assert seen > 35


@pytest.mark.parametrize("name", ["extra", "", "Schema", "schema ", "salt", "cache_salt", "tenant"])
def test_each_field_too_many_is_named(name: str, document: Callable[[str], dict[str, Any]]) -> None:
    for _, at in list(objects(document("query-scoped"))):
        whole = document("query-scoped")
        place = next(value for value, path in objects(whole) if path == at)
        place[name] = "1"
        if at in FREE and name == "extra":
            TransformManifest.from_json(whole)
            continue
        option = refused(json.dumps(whole)).option
        assert option == f"{at}.{name}".lstrip("."), at
        assert not SCHEMA.is_valid(whole), (at, name)


def test_each_field_renamed_is_refused(document: Callable[[str], dict[str, Any]]) -> None:
    for _, at in list(objects(document("query-scoped"))):
        if at in FREE:
            continue
        for key in next(value for value, place in objects(document("query-scoped")) if place == at):
            for other in (key.upper(), key + "_", key[:-1], "\u200b" + key):
                whole = document("query-scoped")
                place = next(value for value, path in objects(whole) if path == at)
                place[other] = place.pop(key)
                refused(json.dumps(whole))
                assert not SCHEMA.is_valid(whole)


def test_each_field_of_another_type_is_named_or_a_valid_other_value(
    document: Callable[[str], dict[str, Any]],
) -> None:
    refusals = 0
    for _, at in list(objects(document("unicode"))):
        for key in next(value for value, place in objects(document("unicode")) if place == at):
            for wrong in WRONG:
                whole = document("unicode")
                place = next(value for value, path in objects(whole) if path == at)
                if type(place[key]) is type(wrong) and place[key] == wrong:
                    continue
                place[key] = wrong
                path = f"{at}.{key}".lstrip(".")
                try:
                    manifest = TransformManifest.parse(json.dumps(whole))
                except EvidenceError as error:
                    assert str(error.option).startswith(path) or error.option in (
                        "position_map.rule", "retained.count", "scope.binding", "scope.kind",
                        "format.tensor_parallel", "integer too large",
                    ), (path, wrong, error.option)  # fmt: skip
                    refusals += 1
                else:
                    assert manifest.to_json() == whole, (path, wrong)
                    assert SCHEMA.is_valid(whole), (path, wrong)
                    before = TransformManifest.from_json(document("unicode"))
                    assert manifest.digest != before.digest
    assert refusals > 1000


TYPED = {
    str: [None, True, 1, 1.5, [], {}],
    int: [None, True, False, "1", 1.0, 1.5, [], {}, 0, -1, 2**32],
    dict: [None, True, 1, "x", [], [["a", 1]]],
}


def test_no_field_takes_another_type(document: Callable[[str], dict[str, Any]]) -> None:
    for _, at in list(objects(document("unicode"))):
        for key, held in next(
            v for v, place in objects(document("unicode")) if place == at
        ).items():
            path = f"{at}.{key}".lstrip(".")
            for wrong in TYPED.get(type(held), [True, 1, "x", [], {}]):
                if at == "parameters" and type(wrong) in (int, str):
                    continue
                if path in ("query", "payload_sha256") and wrong is None:
                    continue
                whole = document("unicode")
                next(value for value, place in objects(whole) if place == at)[key] = wrong
                refused(json.dumps(whole))
                # JSON Schema knows one kind of number, so 1.0 is an integer there.
                if not isinstance(wrong, float) or not wrong.is_integer():
                    assert not SCHEMA.is_valid(whole), (path, wrong)


def test_every_truncation_is_refused(vectors: dict[str, dict[str, Any]]) -> None:
    data = vectors["unicode"]["canonical"].encode("utf-8")
    for length in range(len(data)):
        refused(data[:length])


def test_every_single_bit_flipped_is_refused_or_another_manifest(
    vectors: dict[str, dict[str, Any]],
) -> None:
    data = vectors["query-scoped"]["canonical"].encode("utf-8")
    original = TransformManifest.parse(data)
    different = 0
    for place in range(len(data)):
        for bit in range(8):
            damaged = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            try:
                manifest = TransformManifest.parse(damaged)
            except EvidenceError:
                continue
            different += 1
            assert manifest.to_json() == json.loads(damaged)
            assert manifest.digest != original.digest
    assert different > 100


def test_a_repeated_key_is_refused_even_with_the_same_value(
    vectors: dict[str, dict[str, Any]],
) -> None:
    text = vectors["query-scoped"]["canonical"]
    for key, item in (
        ('"schema"', '"schema":"kvseal.transform-manifest.v1",'),
        ('"drop_percent"', '"drop_percent":50,'),
        ('"theta"', '"theta":"100000",'),
        ('"parent"', '"parent":"",'),
    ):
        assert text.count(key) == 1
        error = refused(text.replace(key, item + key))
        assert "duplicate" in error.message
        assert error.value == key.strip('"')


@pytest.mark.parametrize(
    "number", ["1e400", "1E5", "50.0", "5e1", "-0", "NaN", "Infinity", "9" * 400, "9" * 5000, "1_0"]
)
def test_odd_numbers_are_refused(number: str, vectors: dict[str, dict[str, Any]]) -> None:
    text = vectors["query-scoped"]["canonical"].replace('"tokens":8', f'"tokens":{number}')
    assert text.count(number) == 1
    refused(text)


@pytest.mark.parametrize("deep", ["[" * 30_000, '{"a":' * 10_000, "[" * 30_000 + "]" * 30_000])
def test_deep_nesting_is_refused(deep: str, vectors: dict[str, dict[str, Any]]) -> None:
    refused(deep)
    refused(vectors["query-scoped"]["canonical"].replace('"query":{', f'"query":{deep},"x":{{'))


def test_a_long_document_is_not_even_read(vectors: dict[str, dict[str, Any]]) -> None:
    text = vectors["query-scoped"]["canonical"]
    assert TransformManifest.parse(text + " " * (65536 - len(text)))
    assert refused(text + " " * (65537 - len(text))).option == "manifest"


@pytest.mark.parametrize(
    "text", ["", " ", "null", "1", '"x"', "[]", "{}", b"\xff", b"\xef\xbb\xbf{}", "{}{}", "//"]
)
def test_what_is_no_manifest_at_all(text: str | bytes) -> None:
    refused(text)


@pytest.mark.parametrize(
    "schema", ["kvseal.transform-manifest.v2", "kvseal.transform-recipe.v1", "", None, 1]
)
def test_another_schema_is_refused(schema: Any, whole: dict[str, Any]) -> None:
    whole["schema"] = schema
    assert refused(json.dumps(whole)).option == "schema"
    assert not SCHEMA.is_valid(whole)


def test_a_lone_surrogate_is_refused(whole: dict[str, Any]) -> None:
    whole["format"]["model"] = "\ud800"
    assert refused(json.dumps(whole)).option == "format.model"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@given(JSON)
def test_no_other_json_is_a_manifest(value: Any) -> None:
    with pytest.raises(EvidenceError):
        TransformManifest.from_json(value)


def test_seeded_damage_is_refused_and_never_crashes(vectors: dict[str, dict[str, Any]]) -> None:
    chance = random.Random(5)  # noqa: S311
    texts = [vector["canonical"] for vector in vectors.values()]
    known = set(texts)
    for _ in range(4000):
        text = list(chance.choice(texts))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(text))
            piece = chance.choice('{}[]":,0aé\u2028\\') * chance.randint(0, 2)
            text[place : place + chance.randint(0, 3)] = piece
        damaged = "".join(text)
        if damaged in known:
            continue
        try:
            manifest = TransformManifest.parse(damaged)
        except EvidenceError:
            continue
        assert manifest.canonical_bytes.decode("utf-8") not in known
