# SPDX-License-Identifier: Apache-2.0
"""Reading config.json: both spellings, and every refusal by the name of its key."""

from __future__ import annotations

from typing import Any

import pytest

from kvseal.compaction.rope_config import rope_from_config
from kvseal.compaction.rope_parameters import SUPPORTED_ROPE_TYPES, RopeParameters
from kvseal.errors import TransformError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_attention_heads": 9,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_old_spelling() -> None:
    assert rope_from_config({**LLAMA, "rope_scaling": None}) == RopeParameters(
        rope_type="default",
        theta=100000.0,
        head_size=64,
        rotary_dim=64,
        max_position_embeddings=8192,
    )


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_both_spellings_mean_the_same(key: str) -> None:
    old = {**LLAMA, "rope_scaling": {key: "llama3", **LLAMA3}}
    new = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 100000.0, **LLAMA3}
    assert rope_from_config(old) == rope_from_config(new)
    assert rope_from_config(new).number("low_freq_factor") == 1.0


def test_head_dim_and_partial_rotation() -> None:
    rope = rope_from_config({**LLAMA, "head_dim": 128, "partial_rotary_factor": 0.25})
    assert (rope.head_size, rope.rotary_dim) == (128, 32)
    inner = {"rope_type": "default", "partial_rotary_factor": 0.5}
    assert rope_from_config({**LLAMA, "rope_parameters": inner}).rotary_dim == 32


def test_pairing_follows_the_model_or_the_caller() -> None:
    assert not rope_from_config({**LLAMA, "model_type": "qwen3"}).interleaved
    assert rope_from_config({**LLAMA, "model_type": "cohere"}).interleaved
    assert rope_from_config({**LLAMA, "model_type": "newcomer"}, interleaved=True).interleaved


def test_llama_without_theta_has_the_published_one() -> None:
    config = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    assert rope_from_config(config).theta == 10000.0


def longrope(**changes: Any) -> dict[str, Any]:
    fields = {"type": "su", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    outer = {"original_max_position_embeddings": 4096, "rope_scaling": fields}
    return {**LLAMA, "model_type": "phi3", **outer, **changes}


def test_longrope_takes_the_engine_limit_and_the_outer_original() -> None:
    rope = rope_from_config(longrope(), max_model_len_tokens=8192)
    assert rope.rope_type == "longrope"
    assert rope.number("original_max_position_embeddings") == 4096
    assert rope.max_model_len_tokens == 8192
    assert len(rope.vector("long_factor")) == 32


def test_engine_limit_is_no_part_of_the_other_types() -> None:
    assert rope_from_config(LLAMA, max_model_len_tokens=99) == rope_from_config(LLAMA)


def test_equal_parameters_are_equal_and_hashable() -> None:
    config = {**LLAMA, "rope_scaling": {"type": "llama3", **LLAMA3}}
    assert len({rope_from_config(config), rope_from_config(dict(config))}) == 1


def test_fields_are_reached_by_name_and_kind() -> None:
    rope = rope_from_config(longrope(), max_model_len_tokens=8192)
    for wrong in (lambda: rope.number("factor"), lambda: rope.number("long_factor")):
        with pytest.raises(KeyError):
            wrong()
    with pytest.raises(KeyError):
        rope.vector("original_max_position_embeddings")


NESTED = {"full_attention": {"rope_type": "default"}, "sliding_attention": {}}
REFUSED = [
    ({"rope_scaling": {"type": "ntk", "factor": 2.0}}, "rope_type", "ntk"),
    ({"rope_scaling": {"type": "proportional"}}, "rope_type", "proportional"),
    ({"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}, "rope_type", "mrope"),
    (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [8, 12, 12]}},
        "rope_type",
        "mrope",
    ),
    ({"rope_parameters": NESTED}, "rope_parameters", "per-layer-type"),
    ({"rope_local_base_freq": 10000.0}, "rope_local_base_freq", "per-layer-type"),
    (
        {"layer_types": ["full_attention", "sliding_attention"]},
        "layer_types",
        "per-layer-type",
    ),
    ({"no_rope_layers": [1, 1, 0]}, "no_rope_layers", "per-layer-type"),
    ({"no_rope_layer_interval": 4}, "no_rope_layers", "per-layer-type"),
    ({"kv_lora_rank": 512}, "kv_lora_rank", "latent"),
    ({"alibi": True}, "alibi", "re-rotated"),
    ({"text_config": {"hidden_size": 8}}, "text_config", "text model"),
    ({"dual_chunk_attention_config": {"chunk_size": 8}}, "dual_chunk_attention_config", ""),
    ({"model_type": "newcomer"}, "model_type", "interleaved="),
    ({"model_type": "glm4"}, "partial_rotary_factor", "config.json"),
    ({"model_type": "qwen3", "rope_theta": None}, "rope_theta", "config.json"),
    ({"rope_theta": -1.0}, "rope_theta", "positive"),
    ({"rope_theta": "10000"}, "rope_theta", "positive"),
    ({"max_position_embeddings": None}, "max_position_embeddings", "config.json"),
    ({"max_position_embeddings": 0}, "max_position_embeddings", "positive integer"),
    ({"hidden_size": 9 * 5}, "rotary_dim", "even"),
    ({"partial_rotary_factor": 1.5}, "rotary_dim", "head_size"),
    ({"rope_scaling": {"type": "linear"}}, "rope_parameters.factor", "config.json"),
    ({"rope_scaling": {"type": "dynamic"}}, "rope_parameters.factor", "config.json"),
    ({"rope_scaling": {"type": "linear", "factor": None}}, "factor", "config.json"),
    (
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
        "rope_parameters.original_max_position_embeddings",
        "config.json",
    ),
    (
        {"rope_scaling": {"type": "linear", "factor": 2.0, "surprise": 1}},
        "rope_parameters",
        "surprise",
    ),
    (
        {
            "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "linear", "factor": 4.0},
        },
        "rope_scaling and rope_parameters",
        "twice",
    ),
    (longrope(), "max_model_len_tokens", "--max-model-len"),
]


@pytest.mark.parametrize(("changes", "option", "said"), REFUSED)
def test_refused_by_name(changes: dict[str, Any], option: str, said: str) -> None:
    with pytest.raises(TransformError) as caught:
        rope_from_config({**LLAMA, **changes})
    assert caught.value.option == option
    assert said in str(caught.value)


def test_every_type_of_the_contract_is_supported() -> None:
    assert set(SUPPORTED_ROPE_TYPES) == {
        "default",
        "linear",
        "dynamic",
        "yarn",
        "llama3",
        "longrope",
    }
    with pytest.raises(TransformError, match="per-head"):
        RopeParameters("per-head", 1e4, 64, 64, 128)
