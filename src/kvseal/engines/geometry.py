# SPDX-License-Identifier: Apache-2.0
"""Sizes of a served model's KV cache, from the LMCache server and the model's config.

LMCache's SDK reads them from a text in the server's `/status` that LMCache 0.5.4
can't write for vLLM's packed layouts. Here they come from the structured fields
beside it and from the model's config.json, and whatever both say must agree.
Called by kvseal.engines.sdk; talks to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kvseal.errors import LayoutError
from kvseal.identity.parts import TensorParallel
from kvseal.layouts.base import KVGeometry


@dataclass(frozen=True)
class ModelShape:
    """Attention sizes of one model, all its layers alike."""

    layers: int
    query_heads: int
    kv_heads: int
    head_size: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read a Hugging Face config.json.

        Raises:
            LayoutError: when a size is missing, or the model uses latent (MLA)
                attention, whose cache has no keys and values to speak of.
        """
        config = config.get("text_config") or config
        if config.get("kv_lora_rank"):
            raise LayoutError(
                "models with latent attention (MLA) are not supported",
                option="config.json kv_lora_rank",
                value=config["kv_lora_rank"],
                remedy="choose a model with ordinary or grouped-query attention",
            )
        try:
            query_heads = int(config["num_attention_heads"])
            return cls(
                layers=int(config["num_hidden_layers"]),
                query_heads=query_heads,
                kv_heads=int(config.get("num_key_value_heads") or query_heads),
                head_size=int(config.get("head_dim") or config["hidden_size"] // query_heads),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LayoutError(f"config.json does not give the model's sizes: {error!r}") from error


@dataclass(frozen=True)
class EngineGeometry:
    """What a running engine registered with the LMCache server.

    `tensor_parallel` says how the ranks that are read share the KV heads: one rank,
    which holds them all, since any other engine is refused.
    """

    engine_kv_format: str
    kv: KVGeometry
    query_heads: int
    captures_queries: bool
    tensor_parallel: TensorParallel

    @property
    def query_width(self) -> int:
        """Elements of one token's queries in one layer."""
        return self.query_heads * self.kv.head_size


def read_geometry(
    status: Mapping[str, Any], *, model_name: str, shape: ModelShape, chunk_size_tokens: int
) -> EngineGeometry:
    """Return the geometry of the KV cache that an engine registered for `model_name`.

    Args:
        status: body of the LMCache server's `/status`.
        model_name: the model as the engine calls it to LMCache (the path or
            repository given to vLLM, not the name it serves it under).
        shape: sizes from the model's own config.json.
        chunk_size_tokens: the server's chunk.

    Raises:
        LayoutError: when no engine is registered, several differ, or the cache
            is one that the SDK can't read whole: more than one rank (tensor or
            pipeline parallel), several kernel groups (hybrid models), MLA; and
            when sizes contradict each other.
    """
    layout = _single_layout(status.get("cache_context_meta") or {}, model_name)
    group = _single_group(layout)
    block = int(group["tokens_per_block"])
    if int(group.get("slots_per_block", block)) != block:
        raise LayoutError(
            "KV blocks with more or fewer slots than tokens are not known",
            option="slots_per_block",
            value=group["slots_per_block"],
            expected=str(block),
        )
    if chunk_size_tokens % block:
        raise LayoutError(
            "a chunk must be a whole number of blocks",
            value=f"chunk {chunk_size_tokens}, block {block} tokens",
            remedy="set vLLM's block size to a divisor of LMCache's chunk size",
        )
    kv = KVGeometry(
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        block_size_tokens=block,
        dtype=_dtype(str(group["dtype"])),
    )
    _expect("layers", int(layout["num_layers"]), kv.layers)
    _refuse_a_share(int(layout["cache_size_per_token"]), kv)
    _expect("bytes per token", int(layout["cache_size_per_token"]), kv.bytes_per_token)
    _expect_concrete_shape(group, kv)
    return EngineGeometry(
        engine_kv_format=str(group["engine_kv_format"]),
        kv=kv,
        query_heads=shape.query_heads,
        captures_queries=any(
            e.get("model_name") == f"{model_name}##query"
            for e in (status.get("q_context_meta") or {}).values()
        ),
        tensor_parallel=TensorParallel(1, kv.kv_heads),
    )


def _single_layout(entries: Mapping[str, Any], model_name: str) -> Mapping[str, Any]:
    """Return the one layout of all engines of a model; each rank has an entry of its own."""
    matching = [e for e in entries.values() if e.get("model_name") == model_name]
    if not matching:
        known = sorted({str(e.get("model_name")) for e in entries.values()})
        raise LayoutError(
            "no engine has registered a KV cache for this model with the LMCache server",
            option="model name",
            value=model_name,
            expected=" or ".join(known) or "a vLLM that is up",
            remedy="start vLLM with LMCACHE_MP_TRANSFER_MODE=lmcache_driven, before connecting",
        )
    # Before layouts are compared: with pipeline parallelism those of the ranks may differ.
    sizes = [e.get("world_size") for e in matching]
    if any(size != 1 for size in sizes):
        raise LayoutError(
            "the KV cache of this model is spread over several ranks, and LMCache's SDK reads "
            "rank 0 alone; nothing was read",
            option="world_size in /status",
            value=sizes,
            expected="1 of every engine of the model",
            remedy="serve the model with tensor and pipeline parallel size 1",
        )
    if any(e.get("kv_cache_layout") != matching[0].get("kv_cache_layout") for e in matching):
        raise LayoutError(
            "several engines registered this model with different KV caches",
            value=model_name,
            remedy="restart the LMCache server with one engine",
        )
    layout: Mapping[str, Any] = matching[0].get("kv_cache_layout") or {}
    return layout


def _single_group(layout: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the one group of layers; LMCache makes one of each kind and engine group."""
    groups = layout.get("kernel_groups") or []
    if len(groups) != 1:
        kinds = [
            f"{g.get('num_layers')} layers of {g.get('engine_kv_format')} {g.get('dtype')}, "
            f"engine group {g.get('engine_group_idx')}"
            for g in groups
        ]
        raise LayoutError(
            f"this KV cache has {len(groups)} groups of layers (a hybrid model), and LMCache's SDK "
            "reads one; nothing was read",
            option="kernel_groups in /status",
            value=kinds,
            expected="1 group",
            remedy="choose a model whose attention layers are all alike",
        )
    group: Mapping[str, Any] = groups[0]
    held, layers = group.get("num_layers"), layout.get("num_layers")
    if held != layers:
        # Layers that reuse the KV of others belong to no group.
        raise LayoutError(
            "some layers of this model have no KV of their own; nothing was read",
            option="num_layers of the kernel group in /status",
            value=held,
            expected=f"{layers}, as the model has layers",
            remedy="choose a model whose attention layers are all alike",
        )
    if group.get("is_mla"):
        raise LayoutError("models with latent attention (MLA) are not supported", value=group)
    return group


def _refuse_a_share(registered_bytes: int, kv: KVGeometry) -> None:
    """Refuse one rank's heads: with several LMCache servers each calls its share the whole."""
    ranks, rest = divmod(kv.bytes_per_token, max(registered_bytes, 1))
    if ranks > 1 and not rest and kv.kv_heads % ranks == 0:
        raise LayoutError(
            f"this LMCache server holds 1 of {ranks} ranks' KV, as it looks; nothing was read",
            option="cache_size_per_token in /status",
            value=registered_bytes,
            expected=f"{kv.bytes_per_token} bytes: {kv.kv_heads} KV heads, and not "
            f"{kv.kv_heads // ranks}",
            remedy="serve the model with tensor parallel size 1 and one LMCache server; if that "
            "is so, name the model directory that vLLM serves",
        )


def _dtype(text: str) -> torch.dtype:
    dtype = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise LayoutError("unknown KV cache element type", option="dtype", value=text)
    return dtype


def _expect(what: str, declared: int, computed: int) -> None:
    if declared != computed:
        raise LayoutError(
            f"the LMCache server and the model's config.json disagree about {what}",
            value=f"server {declared}, config.json {computed}",
            remedy="name the model directory that vLLM serves; quantized KV caches don't work",
        )


def _expect_concrete_shape(group: Mapping[str, Any], kv: KVGeometry) -> None:
    """Hold the server's shape text, where it could write one, against `kv`."""
    found = re.search(r"\[([0-9, ]+)\]", str(group.get("engine_kv_concrete_shape", "")))
    if not found:
        return
    sizes = {
        "TWO": 2,
        "BS": kv.block_size_tokens,
        "NH": kv.kv_heads,
        "HS": kv.head_size,
        "CS": 2 * kv.head_size,
    }
    axes = str(group["engine_kv_format"]).removeprefix("NL_X_").split("_")
    for axis, size in zip(axes, found.group(1).split(","), strict=False):
        if axis in sizes:
            _expect(f"axis {axis} of the KV cache", int(size), sizes[axis])
