# SPDX-License-Identifier: Apache-2.0
"""Reads a model's rotary embedding from its Hugging Face `config.json`.

Pure data: no torch, no files, no guesses. Both spellings are read, the older
`rope_theta` + `rope_scaling` and `rope_parameters` of transformers 5. Whatever
would make re-rotation inexact (an unknown type, a field nobody here has read
the meaning of, layers that rotate differently) is refused by name. Drivers
call it once a run, with the configuration that the engine itself loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvseal.compaction.rope_parameters import (
    ROPE_FIELDS,
    RopeParameters,
    ScalingValue,
    unsupported,
)
from kvseal.errors import TransformError

# How a model pairs the elements it rotates is fixed by its code and stands in
# no configuration. Models whose vLLM code was read; others must be told.
_HALF_SPLIT_MODELS = frozenset(
    {"exaone", "granite", "granitemoe", "internlm2", "llama", "mistral", "mixtral", "olmo"}
    | {"olmo2", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss"}
    | {"starcoder2"}
)
_INTERLEAVED_MODELS = frozenset({"cohere", "ernie4_5", "glm", "glm4"})
# Their configuration classes default to a partial rotation, so silence is not 1.
_PARTIAL_BY_DEFAULT = frozenset({"glm", "glm4"})
# The one model type whose published configurations leave rope_theta out.
_DEFAULT_THETA = {"llama": 10000.0}

_PER_LAYER_KEYS = ("rope_local_base_freq", "local_rope_theta", "global_rope_theta")


def rope_from_config(
    config: Mapping[str, Any],
    *,
    max_model_len_tokens: int | None = None,
    interleaved: bool | None = None,
) -> RopeParameters:
    """Read the rotary embedding of a `config.json` already parsed to a dict.

    `max_model_len_tokens` is vLLM's `--max-model-len`; only longrope needs
    it. `interleaved` is taken from `model_type` where None.

    Raises: TransformError naming the configuration key that is missing,
    unknown, or describes a rotary embedding that can't be re-rotated exactly.

    Source: vLLM 0.28.0 `rotary_embedding/__init__.py: get_rope` and
    `transformers_utils/config.py: patch_rope_parameters`; transformers 5.24
    `modeling_rope_utils.py: standardize_rope_params`.
    """
    _refuse_unsuitable_model(config)
    fields = _rope_fields(config)
    rope_type = str(fields.pop("rope_type", "default"))
    if rope_type not in ROPE_FIELDS:
        raise unsupported("rope_type", rope_type)
    model_type = str(config.get("model_type", ""))
    theta = fields.pop("rope_theta", None)
    if theta is None:
        theta = config.get("rope_theta", _DEFAULT_THETA.get(model_type))
    head_size = config.get("head_dim")
    if head_size is None:
        hidden = _positive_int(config, "hidden_size")
        head_size = hidden // _positive_int(config, "num_attention_heads")
    partial = fields.pop("partial_rotary_factor", None)
    if partial is None:
        partial = config.get("partial_rotary_factor")
    if partial is None:
        if model_type in _PARTIAL_BY_DEFAULT:
            raise _missing("partial_rotary_factor")
        partial = 1.0
    if interleaved is None:
        interleaved = _pairing(model_type)
    return RopeParameters(
        rope_type=rope_type,
        theta=_positive_number("rope_theta", theta),
        head_size=_positive_int({"head_dim": head_size}, "head_dim"),
        rotary_dim=int(int(head_size) * _positive_number("partial_rotary_factor", partial)),
        max_position_embeddings=_positive_int(config, "max_position_embeddings"),
        interleaved=interleaved,
        scaling=_scaling(rope_type, fields, config),
        max_model_len_tokens=max_model_len_tokens if rope_type == "longrope" else None,
    )


def _rope_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope fields of either spelling, as one flat dict with `rope_type` set."""
    old, new = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    if old and new and dict(old) != dict(new):
        raise TransformError(
            "the model configuration describes its rotary embedding twice, differently",
            option="rope_scaling and rope_parameters",
            value=(dict(old), dict(new)),
            expected="one of the two",
            remedy="keep the one that the engine uses",
        )
    fields = dict(new or old)
    nested = sorted(name for name, value in fields.items() if isinstance(value, Mapping))
    if nested:
        raise _per_layer("rope_parameters", nested)
    legacy = fields.pop("type", None)
    fields.setdefault("rope_type", legacy or "default")
    if "mrope_section" in fields or "mrope" in (legacy, fields["rope_type"]):
        raise unsupported("rope_type", "mrope")
    if fields["rope_type"] == "su":  # the name longrope had when Phi-3 came out
        fields["rope_type"] = "longrope"
    if not fields.keys() - {"rope_type"} and config.get("rope_theta") is None:
        model_type = config.get("model_type", "")
        if model_type not in _DEFAULT_THETA:
            raise _missing("rope_theta")
    return fields


def _scaling(
    rope_type: str, fields: dict[str, Any], config: Mapping[str, Any]
) -> tuple[tuple[str, ScalingValue], ...]:
    required, optional, without_effect = ROPE_FIELDS[rope_type]
    if "original_max_position_embeddings" in required:
        # Phi-3 keeps it outside the rope fields, and there it has priority.
        outer = config.get("original_max_position_embeddings")
        if outer is not None:
            fields["original_max_position_embeddings"] = outer
    unknown = sorted(fields.keys() - required - optional - without_effect)
    if unknown:
        raise TransformError(
            f"rope type {rope_type!r} has fields whose effect on its table is not known here",
            option="rope_parameters",
            value=unknown,
            expected=f"only {sorted(required | optional | without_effect)}",
        )
    absent = sorted(required - fields.keys())
    if rope_type == "dynamic" and not fields.keys() & {"factor", "alpha"}:
        absent = ["factor"]
    if absent:
        raise _missing(f"rope_parameters.{absent[0]}")
    return tuple(
        (name, _value(name, fields[name])) for name in sorted(fields.keys() & (required | optional))
    )


def _value(name: str, value: object) -> ScalingValue:
    if isinstance(value, list | tuple):
        return tuple(_positive_number(name, item) for item in value)
    if isinstance(value, bool):
        return value
    return _positive_number(name, value)


def _refuse_unsuitable_model(config: Mapping[str, Any]) -> None:
    for key in ("text_config", "thinker_config", "dual_chunk_attention_config"):
        if config.get(key):
            raise unsupported(key, "present", "give the text model's own configuration")
    if config.get("kv_lora_rank") or config.get("qk_rope_head_dim"):
        raise unsupported("kv_lora_rank", "multi-head latent attention")
    if config.get("alibi"):
        raise unsupported("alibi", True)
    for key in _PER_LAYER_KEYS:
        if config.get(key) is not None:
            raise _per_layer(key, config[key])
    kinds = sorted(set(config.get("layer_types") or ()))
    if len(kinds) > 1:
        # Such models often rotate one kind and leave the other alone.
        raise _per_layer("layer_types", kinds)
    flags = config.get("no_rope_layers")
    if (flags and not all(flags)) or (config.get("no_rope_layer_interval") and not flags):
        raise _per_layer("no_rope_layers", flags)


def _pairing(model_type: str) -> bool:
    if model_type in _HALF_SPLIT_MODELS:
        return False
    if model_type in _INTERLEAVED_MODELS:
        return True
    raise TransformError(
        "it is not known how this model pairs the elements that it rotates",
        option="model_type",
        value=model_type,
        expected=f"one of {sorted(_HALF_SPLIT_MODELS | _INTERLEAVED_MODELS)}",
        remedy="pass interleaved=False (half-split, NeoX style) or True (GPT-J style)",
    )


def _positive_int(source: Mapping[str, Any], key: str) -> int:
    value = source.get(key)
    if value is None:
        raise _missing(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TransformError(
            "not a usable model dimension", option=key, value=value, expected="a positive integer"
        )
    return value


def _positive_number(key: str, value: object) -> float:
    if value is None:
        raise _missing(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise TransformError(
            "not a usable rotary parameter", option=key, value=value, expected="a positive number"
        )
    return float(value)


def _missing(key: str) -> TransformError:
    return TransformError(
        "the model configuration does not say how keys are rotated",
        option=key,
        expected="the key present in config.json; its default differs between model classes",
        remedy=f"write {key} into the model's config.json",
    )


def _per_layer(key: str, value: object) -> TransformError:
    return TransformError(
        "layers of this model rotate their keys differently: per-layer-type RoPE is not supported",
        option=key,
        value=value,
        expected="one rotary embedding for all layers",
    )
