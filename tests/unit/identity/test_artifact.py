# SPDX-License-Identifier: Apache-2.0
"""Sealing, and what a lying transform is caught at before anything is stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.canonical import sha256_hex
from kvseal.errors import EvidenceError, TransformError
from kvseal.identity import (
    Algorithm,
    Format,
    KVArtifact,
    PositionMap,
    Query,
    Retained,
    Rope,
    Scope,
    Source,
    TensorParallel,
    check_artifact,
    payload_sha256,
    register_transform,
    seal,
    seal_legacy,
    source_sha256,
    uint32_values,
)
from kvseal.identity.arrays import nested_uint32_bytes, uint32_bytes
from kvseal.identity.scope import Proof

FORMAT = Format(
    "m", "r1", "layout", "float32", Rope("default", "10000", ()), 2, 4, 3, TensorParallel(1, 2)
)
RANKS = dataclasses.replace(FORMAT, tensor_parallel=TensorParallel(2, 1))
SOURCE = [5, 5, 6, 7, 5, 8, 9, 5]
KEPT = [1, 3, 4, 7]
SNAPKV = Algorithm("snapkv", 1, "test")
QUERY = Query("ab" * 32, 2)
PARENT = "q1" + "a" * 32


@pytest.fixture
def sealed(array: Any) -> Callable[..., KVArtifact]:
    def make(**changes: Any) -> KVArtifact:
        given: dict[str, Any] = {
            "algorithm": SNAPKV,
            "parameters": {"drop_percent": 50},
            "source_token_ids": SOURCE,
            "retained_positions": KEPT,
            "format": FORMAT,
            "query": QUERY,
            "keys": array((3, 4, 2, 4)),
            "values": array((3, 4, 2, 4)),
        }
        return seal(**{**given, **changes})

    return make


@pytest.fixture
def layered(sealed: Callable[..., KVArtifact]) -> KVArtifact:
    return sealed(
        granularity="layer",
        retained_positions=[[0, 1, 2, 7], [1, 3, 4, 7], [0, 2, 5, 6]],
        logical_token_ids=[5, 6, 8, 5],
    )


def test_what_is_sealed_passes(sealed: Callable[..., KVArtifact], reader: Any) -> None:
    artifact = sealed()
    check_artifact(artifact, SOURCE, reader=reader, expected_format=FORMAT)
    manifest = artifact.manifest
    assert artifact.logical_token_ids == (5, 7, 5, 5)
    assert list(uint32_values(artifact.retained_positions)) == KEPT
    assert list(uint32_values(artifact.new_positions)) == [0, 1, 2, 3]
    assert manifest.source == Source(source_sha256(SOURCE), 8, "")
    assert manifest.retained == Retained(4, sha256_hex(artifact.retained_positions), "all")
    assert manifest.position_map == PositionMap("dense", sha256_hex(artifact.new_positions))
    assert manifest.scope.kind == "request-local"
    assert artifact.variant.startswith("r1")
    assert manifest.payload_sha256 is None


def test_the_default_scope_is_a_new_request_each_time(sealed: Callable[..., KVArtifact]) -> None:
    assert sealed().variant != sealed().variant


def test_the_same_inputs_in_query_scope_have_one_name(sealed: Callable[..., KVArtifact]) -> None:
    scope = Scope("query-scoped", QUERY.digest)
    first, second = sealed(scope=scope), sealed(scope=scope)
    assert first.manifest == second.manifest
    assert first.variant == second.variant
    assert first.manifest.recipe_digest == second.manifest.recipe_digest


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": Algorithm("snapkv", 2, "test")},
        {"algorithm": Algorithm("snapkv", 1, "test2")},
        {"parameters": {"drop_percent": 25}},
        # The same IDs are kept from another source.
        {"source_token_ids": [5, 5, 6, 7, 5, 8, 1, 5]},
        {"source_token_ids": [*SOURCE, 1]},
        # The same IDs are kept from other positions.
        {"retained_positions": [0, 3, 4, 7]},
        {"position_rule": "explicit", "new_positions": [0, 1, 2, 4]},
        {"source_variant": PARENT},
        {"query": Query("ab" * 32, 3)},
        {"format": dataclasses.replace(FORMAT, rope=Rope("default", "5000", ()))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_input_gives_another_name(
    change: dict[str, Any], sealed: Callable[..., KVArtifact]
) -> None:
    scope = Scope("query-scoped", QUERY.digest)
    first, second = sealed(scope=scope), sealed(scope=scope, **change)
    assert first.variant != second.variant
    assert first.logical_token_ids == second.logical_token_ids


def test_a_chain_binds_its_parent(
    sealed: Callable[..., KVArtifact], reader: Any, array: Any
) -> None:
    parent = sealed()
    kv = {"keys": array((3, 2, 2, 4)), "values": array((3, 2, 2, 4))}
    child = sealed(
        source_token_ids=parent.logical_token_ids,
        source_variant=parent.variant,
        retained_positions=[0, 2],
        **kv,
    )
    assert child.manifest.source.parent == parent.variant
    check_artifact(child, parent.logical_token_ids, reader=reader, source_variant=parent.variant)
    with pytest.raises(TransformError, match=r"source\.parent"):
        check_artifact(child, parent.logical_token_ids, reader=reader)
    plain = sealed(source_token_ids=parent.logical_token_ids, retained_positions=[0, 2], **kv)
    assert plain.manifest.source.prefix_sha256 != child.manifest.source.prefix_sha256
    with pytest.raises(TransformError, match=r"source\.parent"):
        check_artifact(
            plain, parent.logical_token_ids, reader=reader, source_variant=parent.variant
        )
    with pytest.raises(EvidenceError, match="more widely"):
        sealed(source_variant=parent.variant, scope=Scope("query-scoped", QUERY.digest))


def test_a_query_scope_is_bound_to_the_query(sealed: Callable[..., KVArtifact]) -> None:
    with pytest.raises(EvidenceError, match=r"scope\.binding"):
        sealed(scope=Scope("query-scoped", "cd" * 32))
    with pytest.raises(EvidenceError, match=r"scope\.binding"):
        sealed(scope=Scope("query-scoped", QUERY.digest), query=None)


def test_a_wide_scope_needs_a_proof(
    sealed: Callable[..., KVArtifact], reader: Any, monkeypatch: pytest.MonkeyPatch,
    nothing_registered: None,
) -> None:  # fmt: skip
    wide = {"scope": Scope("global", ""), "query": None}
    with pytest.raises(TransformError, match="no proof"):
        sealed(**wide)
    register_transform("snapkv", 1, proof=Proof("global", ("algorithm",), "none"))
    artifact = sealed(**wide)
    assert artifact.variant.startswith("g1")
    monkeypatch.setattr("kvseal.identity.scope._PROOFS", {})
    with pytest.raises(TransformError, match="no proof"):
        check_artifact(artifact, SOURCE, reader=reader)
    with pytest.raises(TransformError, match="no proof"):
        _ = artifact.variant


def test_other_granularities_and_rules(
    sealed: Callable[..., KVArtifact], layered: KVArtifact, reader: Any
) -> None:
    check_artifact(layered, SOURCE, reader=reader)
    assert list(uint32_values(layered.new_positions)) == [0, 1, 2, 3] * 3
    heads = sealed(
        granularity="layer_head",
        retained_positions=[[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3,
        logical_token_ids=[5, 5, 6, 7],
    )
    check_artifact(heads, SOURCE, reader=reader)
    assert len(heads.retained_positions) == 4 * 3 * 2 * 4
    unmoved = sealed(position_rule="unmoved")
    check_artifact(unmoved, SOURCE, reader=reader)
    assert unmoved.new_positions == unmoved.retained_positions
    explicit = sealed(position_rule="explicit", new_positions=[0, 10, 20, 2**32 - 1])
    check_artifact(explicit, SOURCE, reader=reader)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"retained_positions": [1, 3, 3, 7]}, "retained_positions"),
        ({"retained_positions": [3, 1, 4, 7]}, "retained_positions"),
        ({"retained_positions": [1, 3, 4, 8]}, "retained_positions"),
        ({"retained_positions": [-1, 3, 4, 7]}, "retained_positions"),
        ({"retained_positions": [1, 3, 4, 2**32]}, "retained_positions"),
        ({"retained_positions": [1.0, 3.0]}, "retained_positions"),
        ({"retained_positions": [False, True]}, "retained_positions"),
        ({"retained_positions": ["1"]}, "retained_positions"),
        ({"retained_positions": None}, "retained_positions"),
        ({"retained_positions": [[1, 3]]}, "retained_positions"),
        ({"retained_positions": []}, "retained.count"),
        ({"logical_token_ids": [5, 7]}, None),
        ({"logical_token_ids": [5.0] * 4}, "logical_token_ids"),
        ({"source_token_ids": [-1] * 8}, "source"),
        ({"source_token_ids": ["a"] * 8, "logical_token_ids": [1]}, "source token IDs"),
        ({"position_rule": "explicit"}, "new_positions"),
        ({"new_positions": [0, 1, 2, 3]}, "new_positions"),
        ({"position_rule": "unmoved", "new_positions": KEPT}, "new_positions"),
        ({"position_rule": "explicit", "new_positions": [0, 1]}, "bytes of new_positions"),
        ({"position_rule": "explicit", "new_positions": [0, 1, 1, 2]}, "new_positions"),
        ({"position_rule": "explicit", "new_positions": [3, 2, 1, 0]}, "new_positions"),
        ({"granularity": "layer"}, "retained_positions"),
        ({"granularity": "layer", "retained_positions": [KEPT] * 2}, "retained_positions"),
        (
            {"granularity": "layer", "retained_positions": [KEPT, KEPT, KEPT[:3]]},
            "retained_positions",
        ),
        ({"granularity": "layer", "retained_positions": [KEPT] * 3}, "logical_token_ids"),
        ({"granularity": "layer_head", "retained_positions": [KEPT] * 3}, "retained_positions"),
        ({"granularity": "head", "retained_positions": [[KEPT] * 2] * 3,
          "logical_token_ids": [5] * 4}, "retained.granularity"),
        ({"parameters": {"cache_salt": "x"}}, "parameters.cache_salt"),
        ({"parameters": {"scale": 0.5}}, "parameters.scale"),
        ({"parameters": [("a", 1)]}, "parameters"),
        ({"values": None}, "keys, values, packed"),
        ({"keys": None}, "keys, values, packed"),
        ({"keys": None, "values": None}, "keys, values, packed"),
        ({"packed": "opaque"}, "keys, values, packed"),
        ({"values": None, "packed": "opaque"}, "keys, values, packed"),
    ],
    ids=str,
)  # fmt: skip
def test_what_can_t_be_sealed(
    changes: dict[str, Any], option: str | None, sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    if option is None:  # sealed as told, and caught by the check
        with pytest.raises(TransformError, match="logical_token_ids"):
            check_artifact(sealed(**changes), SOURCE, reader=reader)
        return
    with pytest.raises((TransformError, EvidenceError)) as caught:
        sealed(**changes)
    assert caught.value.option == option


def lie(artifact: KVArtifact, **changes: Any) -> KVArtifact:
    """The artifact with other parts, and a manifest whose digests fit them again."""
    manifest = artifact.manifest
    fitting: dict[str, Any] = {}
    if "logical_token_ids" in changes:
        ids = uint32_bytes(changes["logical_token_ids"], "ids")
        fitting["logical_tokens_sha256"] = sha256_hex(ids)
    if "retained_positions" in changes:
        data = changes["retained_positions"]
        fitting["retained"] = dataclasses.replace(
            manifest.retained, positions_sha256=sha256_hex(data)
        )
    if "new_positions" in changes:
        rule = changes.pop("rule", manifest.position_map.rule)
        fitting["position_map"] = PositionMap(rule, sha256_hex(changes["new_positions"]))
    return dataclasses.replace(
        artifact, manifest=dataclasses.replace(manifest, **fitting), **changes
    )


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"retained_positions": [1, 3, 3, 7]}, "retained_positions"),
        ({"retained_positions": [1, 4, 3, 7]}, "retained_positions"),
        ({"retained_positions": [1, 3, 4, 8]}, "retained_positions"),
        ({"retained_positions": [1, 3, 4, 2**32 - 1]}, "retained_positions"),
        ({"retained_positions": [1, 3, 7]}, "bytes of retained_positions"),
        ({"retained_positions": [1, 3, 4, 5, 7]}, "bytes of retained_positions"),
        # Increasing and in range, but the IDs there are others.
        ({"retained_positions": [1, 2, 4, 7]}, "logical_token_ids"),
        ({"new_positions": [0, 1, 2, 4]}, "new_positions"),
        ({"new_positions": [1, 2, 3, 4]}, "new_positions"),
        ({"new_positions": [0, 1, 3, 2]}, "new_positions"),
        ({"new_positions": [0, 1, 2]}, "bytes of new_positions"),
        ({"new_positions": [0, 0, 1, 2], "rule": "explicit"}, "new_positions"),
        ({"logical_token_ids": (5, 7, 5, 6)}, "logical_token_ids"),
        ({"logical_token_ids": (6, 7, 5, 5)}, "logical_token_ids"),
        ({"logical_token_ids": (5, 7, 5)}, "logical_token_ids"),
        ({"logical_token_ids": (5, 7, 5, 5, 5)}, "logical_token_ids"),
    ],
    ids=str,
)
def test_a_lie_with_fitting_digests_is_caught(
    change: dict[str, Any], option: str, sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    change = {
        name: uint32_bytes(value, name) if name.endswith("positions") else value
        for name, value in change.items()
    }
    with pytest.raises(TransformError) as caught:
        check_artifact(lie(sealed(), **change), SOURCE, reader=reader)
    assert caught.value.option == option
    assert "nothing was stored" in caught.value.message


def test_unmoved_positions_that_moved_are_caught(
    sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    artifact = sealed(position_rule="unmoved")
    with pytest.raises(TransformError, match="new_positions"):
        check_artifact(
            dataclasses.replace(artifact, new_positions=uint32_bytes([1, 3, 4, 6], "")),
            SOURCE, reader=reader,
        )  # fmt: skip


def test_each_row_of_a_layer_is_looked_at(layered: KVArtifact, reader: Any) -> None:
    rows = [[0, 1, 2, 7], [1, 3, 4, 7], [0, 2, 5, 6]]
    for row, place, value in ((0, 1, 0), (1, 3, 8), (2, 3, 5), (2, 0, 9)):
        wrong = [list(items) for items in rows]
        wrong[row][place] = value
        with pytest.raises(TransformError, match="retained_positions"):
            check_artifact(
                lie(layered, retained_positions=nested_uint32_bytes(wrong, (3,), "")),
                SOURCE, reader=reader,
            )  # fmt: skip
    for new in ([0, 1, 2, 3] * 2 + [0, 1, 2, 4], [0, 1, 2, 3] * 2 + [1, 2, 3, 4]):
        with pytest.raises(TransformError, match="new_positions"):
            check_artifact(lie(layered, new_positions=uint32_bytes(new, "")), SOURCE, reader=reader)
    for ids in ((8, 6, 5, 5), (5, 6, 8, 1), (6, 6, 8, 5)):
        with pytest.raises(TransformError, match="logical_token_ids"):
            check_artifact(lie(layered, logical_token_ids=ids), SOURCE, reader=reader)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retained_positions", uint32_bytes([0, 3, 4, 7], "")),
        ("retained_positions", b""),
        ("retained_positions", uint32_bytes(KEPT, "")[:-1]),
        ("new_positions", uint32_bytes([0, 1, 2, 4], "")),
        ("new_positions", b""),
        ("logical_token_ids", (5, 7, 5, 6)),
    ],
    ids=str,
)
def test_arrays_that_the_manifest_does_not_bind_are_caught(
    name: str, value: Any, sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    with pytest.raises(TransformError, match=f"digest of {name}"):
        check_artifact(dataclasses.replace(sealed(), **{name: value}), SOURCE, reader=reader)


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ([*SOURCE, 1], "manifest.source.tokens"),
        (SOURCE[:-1], "manifest.source.tokens"),
        # Equal where tokens were kept, different where they were dropped.
        ([0, 5, 6, 7, 5, 8, 9, 5], "manifest.source.prefix_sha256"),
    ],
)
def test_another_source_is_caught(
    source: list[int], option: str, sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    with pytest.raises(TransformError) as caught:
        check_artifact(sealed(), source, reader=reader)
    assert caught.value.option == option


def test_a_forged_source_digest_is_caught(sealed: Callable[..., KVArtifact], reader: Any) -> None:
    artifact = sealed()
    forged = dataclasses.replace(
        artifact.manifest, source=Source(source_sha256(SOURCE, PARENT), 8, "")
    )
    with pytest.raises(TransformError, match="prefix_sha256"):
        check_artifact(dataclasses.replace(artifact, manifest=forged), SOURCE, reader=reader)


@pytest.mark.parametrize("shape", [(3, 5, 2, 4), (3, 3, 2, 4), (2, 4, 2, 4), (3, 4, 1, 4),
                                   (3, 4, 2, 8), (3, 4, 8), (1, 3, 4, 2, 4)])  # fmt: skip
@pytest.mark.parametrize("name", ["keys", "values"])
def test_kv_of_another_shape_is_caught(
    name: str, shape: tuple[int, ...], sealed: Callable[..., KVArtifact], reader: Any, array: Any
) -> None:
    with pytest.raises(TransformError, match=rf"{name}\.shape"):
        check_artifact(sealed(**{name: array(shape)}), SOURCE, reader=reader)


@pytest.mark.parametrize("dtype", ["float16", "torch.bfloat16", "int8"])
def test_kv_of_another_dtype_is_caught(
    dtype: str, sealed: Callable[..., KVArtifact], reader: Any, array: Any
) -> None:
    for name in ("keys", "values"):
        with pytest.raises(TransformError, match=rf"{name}\.dtype"):
            check_artifact(sealed(**{name: array((3, 4, 2, 4), dtype)}), SOURCE, reader=reader)
    check_artifact(sealed(keys=array((3, 4, 2, 4), "torch.float32")), SOURCE, reader=reader)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["keys", "values"])
def test_nan_and_infinity_are_caught(
    name: str, value: float, sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    artifact = sealed()
    artifact.arrays[name].items[-1] = value
    with pytest.raises(TransformError, match="NaN or infinity") as caught:
        check_artifact(artifact, SOURCE, reader=reader)
    assert caught.value.option == name


def test_packed_kv(sealed: Callable[..., KVArtifact], reader: Any, array: Any) -> None:
    none = {"keys": None, "values": None}
    for shape in ((2, 3, 4, 8), (1, 3, 4, 16), (3, 4, 16), (3, 4, 5)):
        check_artifact(sealed(packed=array(shape), **none), SOURCE, reader=reader)
    for shape in ((2, 3, 5, 8), (2, 2, 4, 8), (2, 4, 3, 8), (4, 16)):
        with pytest.raises(TransformError, match=r"packed\.shape"):
            check_artifact(sealed(packed=array(shape), **none), SOURCE, reader=reader)
    with pytest.raises(TransformError, match="NaN"):
        check_artifact(
            sealed(packed=array((3, 4, 16), fill=float("nan")), **none), SOURCE, reader=reader
        )


def test_one_rank_of_several_is_refused(
    sealed: Callable[..., KVArtifact], reader: Any, array: Any
) -> None:
    given: dict[str, Any] = {"format": RANKS, "keys": None, "values": None}
    for shape in ((2, 3, 4, 4), (1, 3, 4, 8), (3, 4, 8)):
        with pytest.raises(TransformError, match="one rank"):
            check_artifact(sealed(packed=array(shape), **given), SOURCE, reader=reader)
    check_artifact(sealed(packed=array((2, 3, 4, 8)), **given), SOURCE, reader=reader)
    with pytest.raises(TransformError, match=r"keys\.shape"):
        check_artifact(sealed(format=RANKS, keys=array((3, 4, 1, 4))), SOURCE, reader=reader)
    repeated = dataclasses.replace(FORMAT, tensor_parallel=TensorParallel(2, 2))
    check_artifact(
        sealed(packed=array((2, 3, 4, 8)), **{**given, "format": repeated}),
        SOURCE, reader=reader,
    )  # fmt: skip


def test_another_format_than_the_engine_s_is_caught(
    sealed: Callable[..., KVArtifact], reader: Any
) -> None:
    for change in (
        {"model_revision": "r2"},
        {"kv_layout": "other"},
        {"rope": Rope("default", "10001", ())},
    ):
        other = dataclasses.replace(FORMAT, **change)
        with pytest.raises(TransformError, match=r"manifest\.format"):
            check_artifact(sealed(), SOURCE, reader=reader, expected_format=other)


def test_a_payload_digest_is_compared(
    sealed: Callable[..., KVArtifact], reader: Any, array: Any
) -> None:
    artifact = sealed(digest_payload=reader)
    assert artifact.manifest.payload_sha256 == payload_sha256(artifact.arrays, reader)
    check_artifact(artifact, SOURCE, reader=reader)
    artifact.values.items[0] = 2.0
    with pytest.raises(TransformError, match="payload_sha256"):
        check_artifact(artifact, SOURCE, reader=reader)


def test_payload_digests_tell_arrays_apart(reader: Any, array: Any) -> None:
    one, two = array((2, 3)), array((3, 2))
    half = array((2, 3), "float16")
    digests = [
        payload_sha256({"keys": one}, reader), payload_sha256({"values": one}, reader),
        payload_sha256({"keys": two}, reader), payload_sha256({"keys": half}, reader),
        payload_sha256({"keys": one, "values": two}, reader),
        payload_sha256({"keys": two, "values": one}, reader), payload_sha256({}, reader),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)


def test_no_manifest_no_store(sealed: Callable[..., KVArtifact], reader: Any) -> None:
    artifact = dataclasses.replace(sealed(), manifest={"schema": "x"})
    with pytest.raises(TransformError, match="manifest"):
        check_artifact(artifact, SOURCE, reader=reader)


def test_a_legacy_tuple_is_request_local(reader: Any, array: Any) -> None:
    def make() -> KVArtifact:
        return seal_legacy(
            array((2, 3, 4, 8)), [5, 7, 5, 5], source_token_ids=SOURCE, format=FORMAT,
            implementation="drop_tokens_fn",
        )  # fmt: skip

    artifact = make()
    assert artifact.manifest.scope.kind == "request-local"
    assert artifact.manifest.algorithm == Algorithm("legacy", 1, "drop_tokens_fn")
    assert artifact.manifest.position_map.rule == "unstated"
    assert artifact.retained_positions == artifact.new_positions == b""
    check_artifact(artifact, SOURCE, reader=reader)
    assert make().variant != artifact.variant, "another request never has the same name"
    with pytest.raises(TransformError, match="digest of retained_positions"):
        check_artifact(
            dataclasses.replace(artifact, retained_positions=uint32_bytes(KEPT, "")),
            SOURCE, reader=reader,
        )  # fmt: skip


@pytest.mark.parametrize("tokens", [[5, 7, 5], [5, 7, 5, 5, 5]])
def test_a_legacy_tuple_whose_lengths_disagree_is_caught(
    tokens: list[int], reader: Any, array: Any
) -> None:
    artifact = seal_legacy(
        array((2, 3, 4, 8)), tokens, source_token_ids=SOURCE, format=FORMAT, implementation="f"
    )
    with pytest.raises(TransformError, match=r"packed\.shape"):
        check_artifact(artifact, SOURCE, reader=reader)


def test_a_legacy_tuple_with_nan_or_no_tokens_is_caught(reader: Any, array: Any) -> None:
    given: dict[str, Any] = {"source_token_ids": SOURCE, "format": FORMAT, "implementation": "f"}
    artifact = seal_legacy(array((2, 3, 4, 8), fill=float("inf")), [1, 2, 3, 4], **given)
    with pytest.raises(TransformError, match="infinity"):
        check_artifact(artifact, SOURCE, reader=reader)
    for tokens in (None, [1.5], ["a"], [-1], 7):
        with pytest.raises(TransformError, match="logical_token_ids"):
            seal_legacy(array((2, 3, 1, 8)), tokens, **given)
    with pytest.raises(EvidenceError, match=r"retained\.count"):
        seal_legacy(array((2, 3, 1, 8)), [], **given)
    chained = seal_legacy(array((2, 3, 4, 8)), [1, 2, 3, 4], source_variant=PARENT, **given)
    assert chained.manifest.source.parent == PARENT


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_uint32_bytes_read_back(values: list[int]) -> None:
    data = uint32_bytes(values, "x")
    assert data == b"".join(value.to_bytes(4, "little") for value in values)
    assert list(uint32_values(data)) == values


@given(st.data())
def test_any_selection_seals_and_passes(data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=30))
    kept = sorted(data.draw(st.sets(st.integers(0, len(tokens) - 1), min_size=1)))

    class Flat:
        shape, dtype = (3, len(kept), 16), "float32"

    class Finite:
        def is_finite(self, array: Any) -> bool:
            return True

        def chunks(self, array: Any) -> list[bytes]:
            return []

    artifact = seal(
        algorithm=SNAPKV, parameters={}, source_token_ids=tokens, retained_positions=kept,
        format=FORMAT, packed=Flat(),
    )  # fmt: skip
    check_artifact(artifact, tokens, reader=Finite())
    assert artifact.logical_token_ids == tuple(tokens[place] for place in kept)
