# SPDX-License-Identifier: Apache-2.0
"""A SnapKV run's artifact: everything that decided it is in its name."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")

from kvseal.compaction import snapkv_artifact as module  # noqa: E402
from kvseal.compaction.artifact_checks import check_before_store  # noqa: E402
from kvseal.compaction.compacted import Compacted  # noqa: E402
from kvseal.compaction.rope_parameters import RopeParameters  # noqa: E402
from kvseal.compaction.snapkv import SnapKV  # noqa: E402
from kvseal.compaction.snapkv_artifact import (  # noqa: E402
    implementation,
    query_sha256,
    rope_part,
    snapkv_artifact,
)
from kvseal.errors import TransformError  # noqa: E402
from kvseal.identity import Format, KVArtifact, Rope, TensorParallel  # noqa: E402

ROPE = RopeParameters("default", 10000.0, 16, 16, 1024)
FORMAT = Format("m", "r", "l", "float32", rope_part(ROPE), 2, 16, 3, TensorParallel(1, 2))
IDS = [token % 50 for token in range(64)]
SNAPKV = SnapKV(50, window_tokens=8, kernel_tokens=3)


def tensors(seed: int = 1) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    return torch.randn(3, 64, 4, 16), torch.randn(3, 64, 2, 16), torch.randn(3, 64, 2, 16)


def run(seed: int = 1, snapkv: SnapKV = SNAPKV, chunk: int = 4, **changes: Any) -> KVArtifact:
    queries, keys, values = tensors(seed)
    scale = changes.get("softmax_scale")
    compacted = snapkv.apply(
        queries, keys, values, IDS, ROPE, chunk_tokens=chunk, softmax_scale=scale
    )
    given: dict[str, Any] = {
        "queries": queries, "source_token_ids": IDS, "format": FORMAT, "chunk_tokens": chunk,
        "scope_kind": "query-scoped",
    }  # fmt: skip
    return snapkv_artifact(compacted, snapkv, **{**given, **changes})


def test_a_run_passes_the_checks_and_says_what_it_was() -> None:
    artifact = run(digest_payload=True)
    check_before_store(artifact, IDS, expected_format=FORMAT)
    manifest = artifact.manifest
    assert (manifest.algorithm.name, manifest.algorithm.version) == ("snapkv", 1)
    assert manifest.algorithm.implementation == implementation()
    assert dict(manifest.parameters) == {
        "drop_percent": 50, "window_tokens": 8, "kernel_tokens": 3, "chunk_tokens": 4,
        "softmax_scale": "1/sqrt(head_size)",
    }  # fmt: skip
    assert manifest.retained.count == 32
    assert manifest.position_map.rule == "dense"
    assert manifest.query is not None
    assert manifest.query.window_tokens == 8
    assert manifest.scope.binding == manifest.query.digest
    assert manifest.payload_sha256 is not None
    assert (
        manifest.logical_tokens_sha256
        == hashlib.sha256(
            b"".join(token.to_bytes(4, "little") for token in artifact.logical_token_ids)
        ).hexdigest()
    )


def test_two_equal_runs_have_one_name_and_request_local_ones_never() -> None:
    assert run().variant == run().variant
    assert run(scope_kind="request-local").variant != run(scope_kind="request-local").variant
    queries, keys, values = tensors()
    compacted = SNAPKV.apply(queries, keys, values, IDS, ROPE, chunk_tokens=4)
    default = snapkv_artifact(
        compacted, SNAPKV, queries=queries, source_token_ids=IDS, format=FORMAT, chunk_tokens=4
    )
    assert default.manifest.scope.kind == "request-local"


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"snapkv": SnapKV(25, window_tokens=8, kernel_tokens=3)},
        {"snapkv": SnapKV(50, window_tokens=7, kernel_tokens=3)},
        {"snapkv": SnapKV(50, window_tokens=8, kernel_tokens=5)},
        {"chunk": 8},
        {"softmax_scale": 0.25},
        {"source_variant": "q1" + "a" * 32},
        {"format": dataclasses.replace(FORMAT, rope=Rope("default", "10000", ()))},
    ],
    ids=str,
)
def test_each_input_gives_another_name(changes: dict[str, Any]) -> None:
    assert run(**changes).variant != run().variant
    assert run(**changes).manifest.recipe_digest != run().manifest.recipe_digest


def test_another_source_with_the_same_retained_ids_has_another_name() -> None:
    queries, keys, values = tensors()
    compacted = SNAPKV.apply(queries, keys, values, IDS, ROPE, chunk_tokens=4)
    dropped = next(iter(set(range(64)) - set(compacted.retained_positions.tolist())))
    other = [99 if place == dropped else token for place, token in enumerate(IDS)]
    one, two = (
        snapkv_artifact(
            compacted, SNAPKV, queries=queries, source_token_ids=ids, format=FORMAT,
            chunk_tokens=4, scope_kind="query-scoped",
        )
        for ids in (IDS, other)
    )  # fmt: skip
    assert one.logical_token_ids == two.logical_token_ids
    assert one.variant != two.variant


@pytest.mark.parametrize("kind", ["prefix", "global", "everybody"])
def test_no_scope_wider_than_the_query(kind: str) -> None:
    with pytest.raises(TransformError, match="by the query"):
        run(scope_kind=kind)


def test_a_lying_transform_is_caught() -> None:
    queries, keys, values = tensors()
    compacted = SNAPKV.apply(queries, keys, values, IDS, ROPE, chunk_tokens=4)
    given: dict[str, Any] = {"queries": queries, "source_token_ids": IDS, "format": FORMAT,
                             "chunk_tokens": 4}  # fmt: skip
    moved = compacted.retained_positions.clone()
    moved[0] = next(iter(set(range(64)) - set(moved.tolist())))
    lie = dataclasses.replace(compacted, retained_positions=moved.sort().values)
    with pytest.raises(TransformError, match="logical_token_ids"):
        check_before_store(snapkv_artifact(lie, SNAPKV, **given), IDS)
    compacted.keys[2, 3, 1, 4] = float("nan")
    with pytest.raises(TransformError, match="NaN"):
        check_before_store(snapkv_artifact(compacted, SNAPKV, **given), IDS)


def test_positions_that_are_not_dense_are_stated() -> None:
    queries, keys, values = tensors()
    compacted = SNAPKV.apply(queries, keys, values, IDS, ROPE, chunk_tokens=4)
    moved = dataclasses.replace(compacted, new_positions=compacted.new_positions + 5)
    assert isinstance(moved, Compacted)
    artifact = snapkv_artifact(
        moved, SNAPKV, queries=queries, source_token_ids=IDS, format=FORMAT, chunk_tokens=4
    )
    assert artifact.manifest.position_map.rule == "explicit"
    check_before_store(artifact, IDS)


def test_the_query_digest_is_the_documented_one() -> None:
    queries, _, _ = tensors()
    window = queries[:, -8:]
    head = b"kvseal.query.v1 float32 3x8x4x16\n"
    data = bytes(window.contiguous().untyped_storage())
    assert query_sha256(queries, 8) == hashlib.sha256(head + data).hexdigest()
    assert query_sha256(window, 8) == query_sha256(queries, 8), "all tokens or the window alone"
    assert query_sha256(queries, 7) != query_sha256(queries, 8)
    assert query_sha256(queries.double(), 8) != query_sha256(queries, 8)
    changed = queries.clone()
    changed[0, -8, 0, 0] += 1e-6
    assert query_sha256(changed, 8) != query_sha256(queries, 8)
    changed = queries.clone()
    changed[:, :-8] = 0
    assert query_sha256(changed, 8) == query_sha256(queries, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_type": "linear", "scaling": (("factor", 2.0),)},
        {"theta": 10000.5},
        {"rotary_dim": 8},
        {"interleaved": True},
        {"max_position_embeddings": 2048},
        {"max_model_len_tokens": 512},
        {"scaling": (("short_factor", (1.0, 2.0)),)},
        {"scaling": (("short_factor", (1.0, 2.5)),)},
        {"scaling": (("truncate", True),)},
        {"scaling": (("truncate", False),)},
        {"scaling": (("truncate", 1.0),)},
    ],
    ids=str,
)
def test_whatever_fixes_the_rotary_table_is_bound(change: dict[str, Any]) -> None:
    part = rope_part(dataclasses.replace(ROPE, **change))
    assert part != rope_part(ROPE)
    seen = {rope_part(dataclasses.replace(ROPE, **other)) for other in ({}, {"theta": 9.0}, change)}
    assert len(seen) == 3


def test_a_long_list_of_factors_fits_by_digest() -> None:
    factors = tuple(1.0 + i / 7 for i in range(64))
    rope = RopeParameters(
        "longrope", 10000.0, 128, 128, 131072, max_model_len_tokens=2048,
        scaling=(("long_factor", factors), ("short_factor", factors[::-1])),
    )  # fmt: skip
    scaling = dict(rope_part(rope).scaling)
    assert scaling["long_factor"] != scaling["short_factor"]
    assert scaling["long_factor"].startswith("sha256:")
    assert scaling["max_model_len_tokens"] == "2048"


def test_the_implementation_names_version_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    now = implementation()
    version, digest = now.removeprefix("kvseal ").split(" sha256:")
    assert version.count(".") == 2
    assert len(digest) == 64
    implementation.cache_clear()
    monkeypatch.setattr(module, "_DECIDING_MODULES", module._DECIDING_MODULES[:-1])
    try:
        assert implementation() != now
    finally:
        implementation.cache_clear()


def test_a_prefilled_model_end_to_end(make_prefill: Callable[..., Any]) -> None:
    prefill = make_prefill(tokens=96)
    form = dataclasses.replace(FORMAT, rope=rope_part(ROPE))
    compacted = SNAPKV.apply(
        prefill.queries, prefill.keys, prefill.values, prefill.token_ids, ROPE, chunk_tokens=16
    )
    artifact = snapkv_artifact(
        compacted, SNAPKV, queries=prefill.queries, source_token_ids=prefill.token_ids,
        format=form, chunk_tokens=16, digest_payload=True,
    )  # fmt: skip
    check_before_store(artifact, prefill.token_ids, expected_format=form)
    assert artifact.manifest.retained.count == 48
