# SPDX-License-Identifier: Apache-2.0
"""Every field decides the digest; contradictions are refused; size does not grow with tokens."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.errors import EvidenceError
from kvseal.identity import (
    Algorithm,
    Format,
    Query,
    Rope,
    Scope,
    TensorParallel,
    TransformManifest,
    decimal_text,
    pairs,
    seal,
    source_sha256,
)
from kvseal.identity.arrays import EMPTY_SHA256

Document = Callable[..., dict[str, Any]]
OTHER = "ab" * 32
NONCE = "cd" * 16

# A change of each single field that leaves a manifest valid. Where fields bind
# each other, the field that must follow is named too.
CHANGES: dict[str, list[tuple[str, Any]]] = {
    "algorithm.name": [("algorithm.name", "pyramidkv")],
    "algorithm.version": [("algorithm.version", 2)],
    "algorithm.implementation": [("algorithm.implementation", "other")],
    "parameters": [("parameters.drop_percent", 25)],
    "parameters (kind)": [("parameters.drop_percent", "50")],
    "parameters (one more)": [("parameters.extra", 1)],
    "source.prefix_sha256": [("source.prefix_sha256", OTHER)],
    "source.tokens": [("source.tokens", 9)],
    "source.parent": [("source.parent", "q1" + "a" * 32)],
    "retained.count": [("retained.count", 5)],
    "retained.positions_sha256": [("retained.positions_sha256", OTHER)],
    "retained.granularity": [("retained.granularity", "layer")],
    "position_map.rule": [("position_map.rule", "explicit")],
    "position_map.new_positions_sha256": [("position_map.new_positions_sha256", OTHER)],
    "query.digest": [("query.digest", OTHER), ("scope.binding", OTHER)],
    "query.window_tokens": [("query.window_tokens", 3)],
    "format.model": [("format.model", "other")],
    "format.model_revision": [("format.model_revision", "other")],
    "format.kv_layout": [("format.kv_layout", "other")],
    "format.dtype": [("format.dtype", "bfloat16")],
    "format.rope.type": [("format.rope.type", "linear")],
    "format.rope.theta": [("format.rope.theta", "10000")],
    "format.rope.scaling": [("format.rope.scaling.factor", "2")],
    "format.kv_heads": [("format.kv_heads", 1), ("format.tensor_parallel.kv_heads_per_rank", 1)],
    "format.head_size": [("format.head_size", 128)],
    "format.layers": [("format.layers", 3)],
    "format.tensor_parallel.size": [("format.tensor_parallel.size", 2)],
    "format.tensor_parallel.kv_heads_per_rank": [
        ("format.tensor_parallel.size", 3),
        ("format.tensor_parallel.kv_heads_per_rank", 1),
    ],
    "logical_tokens_sha256": [("logical_tokens_sha256", OTHER)],
    "scope.kind": [("scope.kind", "request-local"), ("scope.binding", NONCE)],
    "payload_sha256": [("payload_sha256", OTHER)],
    "query": [("query", None), ("scope.kind", "request-local"), ("scope.binding", NONCE)],
}
NOT_IN_THE_RECIPE = ("retained", "position_map", "logical_tokens_sha256", "payload_sha256")


def changed(document: dict[str, Any], changes: list[tuple[str, Any]]) -> dict[str, Any]:
    for path, value in changes:
        *outer, last = path.split(".")
        place = document
        for name in outer:
            place = place[name]
        assert place.get(last) != value or type(place.get(last)) is not type(value)
        place[last] = value
    return document


def leaves(value: Any, at: str) -> list[str]:
    if isinstance(value, dict) and at not in ("parameters", "format.rope.scaling"):
        return [
            leaf for key, item in value.items() for leaf in leaves(item, f"{at}.{key}".lstrip("."))
        ]
    return [at]


def test_the_changes_cover_every_field(document: Document) -> None:
    fields = set(leaves(document(), "")) - {"schema", "scope.binding"}
    assert fields <= set(CHANGES), "a new field needs a change here"


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_changes_the_digest(field: str, document: Document) -> None:
    before = TransformManifest.from_json(document())
    after = TransformManifest.from_json(changed(document(), CHANGES[field]))
    assert after != before
    assert after.digest != before.digest
    in_recipe = not field.startswith(NOT_IN_THE_RECIPE)
    assert (after.recipe_digest != before.recipe_digest) == in_recipe


def test_a_nonce_changes_both_digests(document: Document) -> None:
    before = TransformManifest.from_json(document("request-local"))
    after = TransformManifest.from_json(
        changed(document("request-local"), [("scope.binding", NONCE)])
    )
    assert after.digest != before.digest
    assert after.recipe_digest != before.recipe_digest


def test_all_changes_at_once_are_pairwise_different(document: Document) -> None:
    made = [TransformManifest.from_json(changed(document(), c)) for c in CHANGES.values()]
    assert len({manifest.digest for manifest in made}) == len(made)


def test_recipe_and_manifest_digests_are_never_equal(document: Document) -> None:
    manifest = TransformManifest.from_json(document())
    assert manifest.digest != manifest.recipe_digest


@given(st.data())
def test_key_order_and_white_space_change_nothing(
    vectors: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    vector = vectors[data.draw(st.sampled_from(sorted(vectors)))]

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: shuffled(value[key]) for key in data.draw(st.permutations(sorted(value)))}

    text = json.dumps(shuffled(vector["manifest"]), indent=data.draw(st.integers(0, 3)))
    manifest = TransformManifest.parse(text)
    assert manifest.canonical_bytes.decode("utf-8") == vector["canonical"]
    assert manifest.recipe_digest == vector["recipe_sha256"]


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: "salt" not in name and "tenant" not in name
)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
PARAMETERS = st.dictionaries(NAMES, TEXTS | st.integers(-(2**53) + 1, 2**53 - 1), max_size=6)


@given(PARAMETERS, PARAMETERS, TEXTS, TEXTS)
def test_different_inputs_have_different_digests(
    vectors: dict[str, dict[str, Any]], first: Any, second: Any, one: str, two: str
) -> None:
    made = []
    for parameters, revision in ((first, one), (second, two)):
        whole = copy.deepcopy(vectors["query-scoped"]["manifest"])
        whole["parameters"], whole["format"]["model_revision"] = parameters, revision
        manifest = TransformManifest.from_json(whole)
        assert TransformManifest.parse(manifest.canonical_bytes) == manifest
        assert manifest.to_json() == whole
        made.append(manifest)
    same = first == second and one == two
    assert (made[0].digest == made[1].digest) == same
    assert (made[0].recipe_digest == made[1].recipe_digest) == same
    assert (made[0] == made[1]) == same


@pytest.mark.parametrize(
    ("name", "changes", "option"),
    [
        ("query-scoped", [("scope.binding", OTHER)], "scope.binding"),
        ("query-scoped", [("query.digest", OTHER)], "scope.binding"),
        ("query-scoped", [("query", None)], "scope.binding"),
        ("prefix", [("scope.binding", OTHER)], "scope.binding"),
        ("prefix", [("query", {"digest": OTHER, "window_tokens": 1})], "query"),
        ("global", [("query", {"digest": OTHER, "window_tokens": 1})], "query"),
        ("global", [("scope.binding", NONCE)], "scope.binding"),
        ("prefix", [("source.parent", "q1" + "a" * 32)], "scope.kind"),
        ("global", [("source.parent", "p1" + "a" * 32)], "scope.kind"),
        ("query-scoped", [("source.parent", "r1" + "a" * 32)], "scope.kind"),
        ("query-scoped", [("position_map.rule", "unstated")], "position_map.rule"),
        ("query-scoped", [("position_map.rule", "unmoved")], "position_map.rule"),
        ("query-scoped", [("retained.positions_sha256", EMPTY_SHA256)], "position_map.rule"),
        ("legacy", [("position_map.rule", "dense")], "position_map.rule"),
        ("legacy", [("retained.positions_sha256", OTHER)], "position_map.rule"),
        ("query-scoped", [("algorithm.name", "legacy")], "position_map.rule"),
        (
            "legacy",
            [
                ("query", {"digest": OTHER, "window_tokens": 1}),
                ("scope.kind", "query-scoped"),
                ("scope.binding", OTHER),
            ],
            "scope.kind",
        ),
        ("legacy", [("scope.kind", "global"), ("scope.binding", "")], "scope.kind"),
        ("query-scoped", [("retained.count", 9)], "retained.count"),
        ("query-scoped", [("format.tensor_parallel.size", 4),
                          ("format.tensor_parallel.kv_heads_per_rank", 1)],
         "format.tensor_parallel"),
        ("query-scoped", [("format.tensor_parallel.kv_heads_per_rank", 6)],
         "format.tensor_parallel"),
        ("query-scoped", [("format.model", "m##tv1-x")], "format.model"),
        ("query-scoped", [("format.model", "m##TV2")], "format.model"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(
    name: str, changes: list[tuple[str, Any]], option: str, document: Document
) -> None:
    with pytest.raises(EvidenceError) as caught:
        TransformManifest.from_json(changed(document(name), changes))
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("kind", "parent"),
    [("r", "r"), ("r", "q"), ("r", "g"), ("q", "q"), ("q", "p"), ("p", "p"), ("p", "g"),
     ("g", "g")],
)  # fmt: skip
def test_a_child_may_be_as_wide_as_its_parent(kind: str, parent: str, document: Document) -> None:
    name = {"r": "request-local", "q": "query-scoped", "p": "prefix", "g": "global"}[kind]
    manifest = TransformManifest.from_json(
        changed(document(name), [("source.parent", f"{parent}1" + "a" * 32)])
    )
    assert manifest.scope.letter == kind


def test_ranks_may_split_or_repeat_heads(document: Document) -> None:
    for size, each in ((1, 3), (3, 1), (6, 1), (2, 3)):
        whole = document()
        whole["format"]["tensor_parallel"] = {"size": size, "kv_heads_per_rank": each}
        TransformManifest.from_json(whole)


def test_a_legacy_artifact_may_be_longer_than_its_source(document: Document) -> None:
    TransformManifest.from_json(changed(document("legacy"), [("retained.count", 100)]))


FORMAT = Format(
    "m" * 200, "r" * 200, "l" * 200, "float32",
    Rope("llama3", "500000", pairs({f"field_{i}": "1.25" for i in range(8)}, "")), 8, 128, 80,
    TensorParallel(8, 1),
)  # fmt: skip


def test_under_4_kib_at_a_million_tokens() -> None:
    tokens = range(4_000_000, 5_000_000)
    artifact = seal(
        algorithm=Algorithm("snapkv", 1, "i" * 200),
        parameters={f"parameter_{i}": "1.25" for i in range(16)},
        source_token_ids=tokens,
        retained_positions=range(1, 1_000_000, 2),
        query=Query(OTHER, 64),
        scope=Scope("query-scoped", OTHER),
        source_variant="q1" + "a" * 32,
        format=FORMAT,
        packed=object(),
    )
    assert len(artifact.manifest.canonical_bytes) < 4096
    assert artifact.manifest.source.tokens == 1_000_000
    assert artifact.logical_token_ids[:2] == (4_000_001, 4_000_003)


def test_4096_bytes_are_too_many_and_4095_are_not(document: Document) -> None:
    def of_size(size: int) -> dict[str, Any]:
        whole = document()
        whole["parameters"] = {f"p{i}": "x" * 256 for i in range(11)} | {"last": "x"}
        short = size - len(json.dumps(whole, separators=(",", ":"), ensure_ascii=False))
        whole["parameters"]["last"] += "x" * short
        return whole

    assert len(TransformManifest.from_json(of_size(4095)).canonical_bytes) == 4095
    with pytest.raises(EvidenceError, match="too long"):
        TransformManifest.from_json(of_size(4096))


def test_it_can_be_copied_stored_and_looked_up_but_not_changed(document: Document) -> None:
    manifest = TransformManifest.from_json(document())
    twin = TransformManifest.from_json(document())
    assert {manifest: 1}[twin] == 1
    assert pickle.loads(pickle.dumps(manifest)) == copy.deepcopy(manifest) == manifest  # noqa: S301
    with pytest.raises(dataclasses.FrozenInstanceError):
        manifest.query = None  # type: ignore[misc]
    other = dataclasses.replace(manifest, payload_sha256=OTHER)
    assert other.digest != manifest.digest, "no digest is kept from the manifest it came from"
    parsed = manifest.to_json()
    parsed["parameters"]["drop_percent"] = 1
    assert manifest.to_json() == document()


@pytest.mark.parametrize(
    "name", ["algorithm", "source", "retained", "position_map", "query", "format", "scope"]
)
def test_made_by_hand_its_parts_have_their_types(name: str, document: Document) -> None:
    manifest = TransformManifest.from_json(document())
    for value in (document()[name], "text", 1):
        with pytest.raises(EvidenceError) as caught:
            dataclasses.replace(manifest, **{name: value})
        assert caught.value.option == name
    if name != "query":
        with pytest.raises(EvidenceError):
            dataclasses.replace(manifest, **{name: None})
    with pytest.raises(EvidenceError, match=r"format\.rope"):
        dataclasses.replace(manifest.format, rope={"type": "default"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [("a", 1)], (("b", 1), ("a", 1)), (("a", 1), ("a", 2)), (("a",),), (("A", 1),),
     (("a", True),), (("a", 1.5),), (("a", None),), (("a", 2**53),), (("a", ""),),
     tuple((f"a{i:02}", 1) for i in range(33))],
    ids=repr,
)  # fmt: skip
def test_made_by_hand_parameters_are_sorted_pairs(value: Any, document: Document) -> None:
    manifest = TransformManifest.from_json(document())
    with pytest.raises(EvidenceError) as caught:
        dataclasses.replace(manifest, parameters=value)
    assert str(caught.value.option).startswith("parameters")


@pytest.mark.parametrize(
    "value",
    [{"a": "1"}, [("a", "1")], (("b", "1"), ("a", "1")), (("a", "1"), ("a", "2")), (("a",),),
     (("A", "1"),), (("a", 1),), (("a", True),), (("a", 1.5),), (("a", None),), (("a", ""),),
     tuple((f"a{i:02}", "1") for i in range(33))],
    ids=repr,
)  # fmt: skip
def test_made_by_hand_scaling_is_sorted_pairs_of_text(value: Any) -> None:
    with pytest.raises(EvidenceError, match=r"format\.rope\.scaling"):
        Rope("default", "1", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(10000.0, "10000"), (1e-5, "0.00001"), (0.1, "0.1"), (-2.50, "-2.5"), (0, "0"), (-0.0, "0"),
     (100, "100"), (1e22, "10000000000000000000000"), (Decimal("1.500"), "1.5"), (1 / 3,
     "0.3333333333333333")],
)  # fmt: skip
def test_one_decimal_text_for_a_number(value: Any, text: str) -> None:
    assert decimal_text(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-300, 1e300])
def test_what_has_no_decimal_text(value: float) -> None:
    with pytest.raises(EvidenceError):
        decimal_text(value)


@given(st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-15))
def test_decimal_text_reads_back_as_the_same_float(value: float) -> None:
    assert float(decimal_text(value)) == value


def test_the_framing_of_a_source_is_injective() -> None:
    parent = "r1" + "a" * 32
    as_ids = [int.from_bytes(parent.encode()[i : i + 4], "little") for i in range(0, 32, 4)]
    digests = [
        source_sha256([], ""), source_sha256([1], ""), source_sha256([1, 0], ""),
        source_sha256([0, 1], ""), source_sha256([], parent), source_sha256([1], parent),
        source_sha256(as_ids, ""), source_sha256([*as_ids, 0x6161], ""),
        source_sha256([1], "q1" + "a" * 32), source_sha256(as_ids, parent),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)
    assert len(parent) % 4, "the IDs take a multiple of four bytes, a variant must not"
    with pytest.raises(EvidenceError):
        source_sha256([1], "r1")
