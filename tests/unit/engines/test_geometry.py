# SPDX-License-Identifier: Apache-2.0
"""Geometry from the server's status and the model's config, and every refusal."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")

from kvseal.engines.geometry import ModelShape, read_geometry  # noqa: E402
from kvseal.errors import LayoutError  # noqa: E402
from kvseal.identity import TensorParallel  # noqa: E402

VECTORS = Path(__file__).parents[2] / "vectors" / "lmcache-status"
TINY = ModelShape(layers=2, query_heads=4, kv_heads=2, head_size=64)
"""The model that the documents in VECTORS are of."""

SHAPE = ModelShape(layers=30, query_heads=9, kv_heads=3, head_size=64)
GROUP = {
    "num_layers": 30,
    "tokens_per_block": 32,
    "slots_per_block": 32,
    "dtype": "torch.float32",
    "engine_kv_concrete_shape": "Unknown (EngineKVFormat.NL_X_NB_NH_BS_CS)",
    "is_mla": False,
    "engine_kv_format": "NL_X_NB_NH_BS_CS",
}
STATUS: dict[str, Any] = {
    "cache_context_meta": {
        "1": {
            "model_name": "/m",
            "world_size": 1,
            "kv_cache_layout": {
                "num_layers": 30,
                "cache_size_per_token": 46080,
                "kernel_groups": [GROUP],
            },
        }
    },
    "q_context_meta": {"1": {"model_name": "/m##query"}},
}


def read(status: dict[str, Any], **changes: Any) -> Any:
    arguments: dict[str, Any] = {"model_name": "/m", "shape": SHAPE, "chunk_size_tokens": 64}
    return read_geometry(status, **(arguments | changes))


def changed(path: str, value: object) -> dict[str, Any]:
    status = copy.deepcopy(STATUS)
    entry = status["cache_context_meta"]["1"]
    layout = entry["kv_cache_layout"]
    where, key = path.split(".")
    {"entry": entry, "layout": layout, "group": layout["kernel_groups"][0]}[where][key] = value
    return status


def test_a_packed_cpu_cache() -> None:
    geometry = read(STATUS)
    assert geometry.engine_kv_format == "NL_X_NB_NH_BS_CS"
    assert (geometry.kv.block_size_tokens, geometry.kv.dtype) == (32, torch.float32)
    assert geometry.captures_queries
    assert geometry.query_width == 576
    assert not read(STATUS | {"q_context_meta": {}}).captures_queries


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("entry.world_size", 2, "spread over several"),
        ("entry.model_name", "/other", "no engine has registered"),
        ("entry.world_size", None, "spread over several"),
        ("entry.world_size", "1", "spread over several"),
        ("layout.kernel_groups", [GROUP, GROUP], "2 groups"),
        ("layout.kernel_groups", [], "0 groups"),
        ("layout.num_layers", 29, "no KV of their own"),
        ("group.num_layers", 29, "no KV of their own"),
        ("group.num_layers", None, "no KV of their own"),
        ("layout.cache_size_per_token", 23040, "disagree about bytes per token"),
        ("layout.cache_size_per_token", 15360, "1 of 3 ranks"),
        ("group.is_mla", True, "MLA"),
        ("group.dtype", "torch.uint8", "element type"),
        ("group.dtype", "torch.nonsense", "unknown KV cache element type"),
        ("group.tokens_per_block", 48, "more or fewer slots"),
    ],
)
def test_what_the_sdk_cannot_read_whole_is_refused(path: str, value: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read(changed(path, value))


def test_layers_that_the_model_does_not_have_are_refused() -> None:
    status = changed("layout.num_layers", 29)
    status["cache_context_meta"]["1"]["kv_cache_layout"]["kernel_groups"][0]["num_layers"] = 29
    with pytest.raises(LayoutError, match="disagree about layers"):
        read(status)


def test_a_chunk_that_cuts_blocks_is_refused() -> None:
    with pytest.raises(LayoutError, match="whole number of blocks"):
        read(STATUS, chunk_size_tokens=48)


def test_engines_that_differ_are_refused_and_equal_ones_are_not() -> None:
    status = copy.deepcopy(STATUS)
    status["cache_context_meta"]["2"] = copy.deepcopy(status["cache_context_meta"]["1"])
    assert read(status).kv.layers == 30
    status["cache_context_meta"]["2"]["kv_cache_layout"]["num_layers"] = 7
    with pytest.raises(LayoutError, match="several engines"):
        read(status)


def test_the_servers_own_shape_text_is_held_against_the_rest() -> None:
    status = changed("group.engine_kv_format", "NL_X_NB_TWO_NH_BS_HS")
    group = status["cache_context_meta"]["1"]["kv_cache_layout"]["kernel_groups"][0]
    group["engine_kv_concrete_shape"] = "30 x [728, 2, 3, 32, 64]"
    assert read(status).kv.head_size == 64
    group["engine_kv_concrete_shape"] = "30 x [728, 2, 6, 32, 32]"
    with pytest.raises(LayoutError, match="axis NH"):
        read(status)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (
            {"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512},
            ModelShape(2, 8, 8, 64),
        ),
        (
            {
                "text_config": {
                    "num_hidden_layers": 2,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 2,
                    "head_dim": 128,
                    "hidden_size": 512,
                }
            },
            ModelShape(2, 8, 2, 128),
        ),
    ],
)
def test_shape_from_config(config: dict[str, Any], shape: ModelShape) -> None:
    assert ModelShape.from_config(config) == shape


def test_config_without_sizes_or_with_latent_attention_is_refused() -> None:
    with pytest.raises(LayoutError, match="num_attention_heads"):
        ModelShape.from_config({"num_hidden_layers": 2})
    with pytest.raises(LayoutError, match="MLA"):
        ModelShape.from_config({"kv_lora_rank": 512})


def recorded(name: str) -> dict[str, Any]:
    """What LMCache 0.5.4, 0.5.5 and 0.5.6 alike say in /status."""
    document: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return document


def test_a_whole_cache_is_read_as_one_rank() -> None:
    geometry = read(recorded("whole"), shape=TINY)
    assert geometry.tensor_parallel == TensorParallel(1, 2)
    assert geometry.kv.kv_heads == 2


@pytest.mark.parametrize(
    ("name", "option", "seen", "message"),
    [
        ("tensor-parallel-2", "world_size in /status", [2, 2], "several ranks"),
        ("pipeline-parallel-2", "world_size in /status", [2, 2], "several ranks"),
        ("one-of-two-servers", "cache_size_per_token in /status", 1024, "1 of 2 ranks"),
        ("sliding-window", "kernel_groups in /status", None, "2 groups of layers"),
        ("shared-layers", "num_layers of the kernel group in /status", 1, "no KV of their own"),
    ],
)
def test_ranks_and_groups_are_refused_by_name(
    name: str, option: str, seen: object, message: str
) -> None:
    with pytest.raises(LayoutError, match=message) as caught:
        read(recorded(name), shape=TINY)
    assert "nothing was read" in caught.value.message
    assert caught.value.option == option
    assert caught.value.remedy
    if seen is not None:
        assert caught.value.value == seen
    else:
        assert len(caught.value.value) == 2  # type: ignore[arg-type]
        assert all("1 layers of NL_X_NB_NH_BS_CS" in text for text in caught.value.value)  # type: ignore[attr-defined]


def test_one_rank_of_an_engine_beside_one_of_several_is_refused() -> None:
    status = recorded("whole")
    status["cache_context_meta"]["2"] = recorded("tensor-parallel-2")["cache_context_meta"]["2"]
    with pytest.raises(LayoutError, match="several ranks") as caught:
        read(status, shape=TINY)
    assert caught.value.value == [1, 2]


def test_ranks_of_another_model_are_not_ours() -> None:
    status = recorded("whole")
    other = recorded("tensor-parallel-2")["cache_context_meta"]["2"]
    status["cache_context_meta"]["2"] = {**other, "model_name": "/other"}
    assert read(status, shape=TINY).tensor_parallel == TensorParallel(1, 2)
