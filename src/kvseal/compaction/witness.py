# SPDX-License-Identifier: Apache-2.0
"""A second opinion: transformers decoding from the same compacted cache.

An engine that answers from compacted KV must give the token IDs that another
implementation gives from the same KV. This fills a transformers cache with
canonical keys and values and decodes greedily, in float32, one request at a
time. It judges nothing and imports transformers only when called; the
comparison driver records what it returns, `kvseal.checkers` compare.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.rotary_table import attention_scale, inverse_frequencies
from kvseal.compaction.tensors import check_canonical
from kvseal.errors import TransformError


class ReferenceDecode(NamedTuple):
    """Greedy token IDs, and for each the logit of the winner minus the runner-up's.

    A margin of the size of float32 noise marks a step at which two right
    implementations may part.
    """

    token_ids: tuple[int, ...]
    top2_margins: tuple[float, ...]


def decode_reference(
    model: Any,
    keys: torch.Tensor,
    values: torch.Tensor,
    tail_token_ids: Sequence[int],
    new_tokens: int,
    *,
    eos_token_ids: Collection[int] | None = None,
    ignore_eos: bool = False,
    rope: RopeParameters | None = None,
) -> ReferenceDecode:
    """Decode `new_tokens` at most after a prefix whose KV is given.

    `model` is a transformers causal language model in float32; `keys` and
    `values` are `[layers, tokens, kv_heads, head_size]`, keys rotated at 0, 1,
    2 …; `tail_token_ids` is the rest of the prompt, computed here at the
    positions after them. Stops as vLLM's greedy completion does: an
    end-of-sequence token ends the answer and is its last ID, unless
    `ignore_eos`. `eos_token_ids` are those of the model's generation
    configuration where None; add the tokenizer's if it has another.

    `rope` is the engine's rotary embedding. Given, the model's own must agree
    with it (longrope and dynamic scaling are chosen differently by the two).

    Raises: TransformError for a model not in float32, shapes that don't fit,
    an empty tail, or a rotary embedding that differs from the engine's.

    Source: vLLM 0.28.0 `v1/core/sched/utils.py: check_stop` and
    `sampling_params.py: update_from_generation_config`.
    """
    from transformers import DynamicCache

    _check(model, keys, values, tail_token_ids, new_tokens)
    if eos_token_ids is None:
        known: Any = getattr(model.generation_config, "eos_token_id", None)
        eos_token_ids = known if isinstance(known, list) else {known} - {None}
    stops = set() if ignore_eos else set(eos_token_ids)

    cache: Any = DynamicCache()
    for layer in range(keys.shape[0]):
        # transformers has heads before tokens, and a batch axis.
        rows = (side[layer].transpose(0, 1)[None].float().contiguous() for side in (keys, values))
        cache.update(*rows, layer)
    step, position = list(tail_token_ids), keys.shape[1]
    # Renamed in transformers 5; the old name warns there and will go.
    accepted = inspect.signature(model.forward).parameters
    cache_argument = "cache" if "cache" in accepted else "past_key_values"
    ids: list[int] = []
    margins: list[float] = []
    with torch.inference_mode():
        while len(ids) < new_tokens:
            positions = torch.arange(position, position + len(step), device=model.device)
            output = model(
                input_ids=torch.tensor([step], device=model.device),
                position_ids=positions[None],
                use_cache=True,
                logits_to_keep=1,
                **{cache_argument: cache},
            )
            if rope is not None:
                _check_rope(model, rope)
            best = output.logits[0, -1].float().topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            # argmax as vLLM's greedy sampler does: topk orders equals differently.
            ids.append(int(output.logits[0, -1].argmax()))
            if ids[-1] in stops:
                break
            position += len(step)
            step = [ids[-1]]
    return ReferenceDecode(tuple(ids), tuple(margins))


def _check(
    model: Any,
    keys: torch.Tensor,
    values: torch.Tensor,
    tail_token_ids: Sequence[int],
    new_tokens: int,
) -> None:
    check_canonical("keys", keys)
    check_canonical("values", values)
    if model.dtype != torch.float32 or model.training:
        raise TransformError(
            "the reference decodes in float32 and in evaluation mode",
            option="model",
            value=f"{model.dtype}, training={model.training}",
            expected="torch.float32, training=False",
            remedy="load it with dtype=torch.float32 and call eval()",
        )
    config = model.config
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    expected = [config.num_hidden_layers, keys.shape[1], kv_heads, size]
    if list(keys.shape) != expected or list(values.shape) != expected:
        raise TransformError(
            "the compacted cache is not of this model",
            option="keys, values",
            value=[list(keys.shape), list(values.shape)],
            expected=str(expected),
        )
    if not tail_token_ids:
        raise TransformError(
            "a prompt must end in at least one token that is computed",
            option="tail_token_ids",
            value=[],
            expected="the prompt's tokens after the compacted ones",
            remedy="an engine recomputes the last token of a prompt that is cached whole",
        )
    if new_tokens < 1:
        raise TransformError(
            "nothing to decode", option="new_tokens", value=new_tokens, expected="1 or more"
        )


def _check_rope(model: Any, rope: RopeParameters) -> None:
    """Compare the table that the model just used with the engine's."""
    used = next((part for part in model.modules() if hasattr(part, "inv_freq")), None)
    if used is None:
        raise TransformError(
            "the model's rotary embedding was not found",
            option="model",
            value=type(model).__name__,
            expected="a module with inv_freq, as transformers' models have",
        )
    expected = inverse_frequencies(rope)
    if rope.rope_type == "linear":
        expected = expected / rope.number("factor")
    own_scale = float(getattr(used, "attention_scaling", 1.0))
    same = used.inv_freq.shape == expected.shape and torch.allclose(
        used.inv_freq.cpu().float(), expected, rtol=1e-5, atol=0
    )
    if not same or abs(own_scale - attention_scale(rope)) > 1e-6:
        raise TransformError(
            "transformers rotates by another table than the engine: its answer would be no"
            " reference",
            option="rope",
            value=f"{rope.rope_type}, attention scale {own_scale} against {attention_scale(rope)}",
            expected="frequencies and attention scale of the engine",
            remedy="set vllm.max_model_len_tokens so that both use the same factors, or go without"
            " the reference",
        )
