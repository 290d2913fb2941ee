# SPDX-License-Identifier: Apache-2.0
"""The rotary table of vLLM 0.28.0 for each rope type: frequencies, scale, cosine and sine.

Everything is float32 and in vLLM's order of operations, because a table that is
right on paper but rounded elsewhere is another table (see `kvseal.compaction.rope`
for why that matters). In vLLM every type has one table for the life of an
engine, whatever the length of a request:

* dynamic (NTK): the base is scaled once, from `max_position_embeddings` and
  `max_trained_positions`; without the latter the scaling is 1. (transformers
  recomputes it from the longest sequence seen, beyond max_position_embeddings.)
* longrope: the long factors if the engine's `--max-model-len` exceeds
  `original_max_position_embeddings`, else the short ones. (transformers picks
  by the length of each sequence.)

Never imports an engine; called by `rope` and `witness`.

Source: vLLM 0.28.0 `model_executor/layers/rotary_embedding/`, one file a type.
"""

from __future__ import annotations

import math

import torch

from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.errors import TransformError


def inverse_frequencies(rope: RopeParameters) -> torch.Tensor:
    """Radians per position of each rotated pair, float32 `[rotary_dim / 2]`.

    For linear scaling vLLM divides the position instead, so these are the
    unscaled ones; `rotary_table` does the division.

    Source: vLLM 0.28.0 `model_executor/layers/rotary_embedding/`, one file a
    type; YaRN arXiv 2309.00071 section 3.2; LongRoPE arXiv 2402.13753 section 3.
    """
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.float32) / rope.rotary_dim
    if rope.rope_type == "longrope":
        factors = torch.tensor(
            rope.vector("long_factor" if _long(rope) else "short_factor"), dtype=torch.float32
        )
        if factors.shape != exponents.shape:
            raise TransformError(
                "longrope needs one factor for each rotated pair",
                option="rope_parameters.long_factor, short_factor",
                value=len(factors),
                expected=f"{len(exponents)} values",
            )
        return 1.0 / (factors * rope.theta**exponents)
    if rope.rope_type == "dynamic":
        return 1.0 / (_dynamic_base(rope) ** exponents)
    plain: torch.Tensor = 1.0 / (rope.theta**exponents)
    if rope.rope_type == "llama3":
        return _llama3(plain, rope)
    if rope.rope_type == "yarn":
        return _yarn(rope, exponents)
    return plain


def attention_scale(rope: RopeParameters) -> float:
    """What vLLM multiplies into cosine and sine, 1.0 for all types but yarn and longrope."""
    if rope.rope_type == "yarn":
        factor = rope.number("factor")
        own = rope.number("attn_factor", 1.0)
        scaled = rope.number("apply_yarn_scaling", True) and factor > 1
        return (0.1 * math.log(factor) + 1.0) * own if scaled else own
    if rope.rope_type == "longrope":
        original = rope.number("original_max_position_embeddings")
        growth = rope.max_position_embeddings / original
        usual = math.sqrt(1 + math.log(growth) / math.log(original)) if growth > 1 else 1.0
        return rope.number("long_mscale" if _long(rope) else "short_mscale", usual)
    return 1.0


def table_positions(rope: RopeParameters) -> int:
    """How many positions the engine's table has; vLLM reads past its end unchecked."""
    if rope.rope_type == "linear":
        return math.ceil(rope.max_position_embeddings * rope.number("factor"))
    if rope.rope_type == "yarn":
        original = rope.number("original_max_position_embeddings")
        return math.ceil(original * rope.number("factor"))
    if rope.rope_type == "longrope" and not _long(rope):
        return int(rope.number("original_max_position_embeddings"))
    return rope.max_position_embeddings


def rotary_table(
    positions: torch.Tensor, rope: RopeParameters, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine as the engine's table holds them in `dtype`.

    `positions` is integer `[tokens]`; both results are `[tokens, rotary_dim / 2]`,
    with the attention scale multiplied in.

    Raises: TransformError for positions outside the table.
    """
    limit = table_positions(rope)
    if positions.dtype not in (torch.int64, torch.int32) or positions.dim() != 1:
        raise TransformError(
            "positions must be one row of whole numbers",
            option="positions",
            value=f"{positions.dtype} {list(positions.shape)}",
            expected="int64 [tokens]",
        )
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < limit:
        raise TransformError(
            "a position lies outside the engine's rotary table",
            option="positions",
            value=f"{int(positions.min())}..{int(positions.max())}",
            expected=f"from 0 to {limit - 1} (rope type {rope.rope_type})",
            remedy="use a shorter prompt or a model with more positions",
        )
    steps = positions.cpu().to(torch.float32)
    if rope.rope_type == "linear":
        steps = steps / rope.number("factor")
    angles = torch.outer(steps, inverse_frequencies(rope))
    scale = attention_scale(rope)
    return (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)


def _long(rope: RopeParameters) -> bool:
    limit = rope.max_model_len_tokens
    return limit is not None and limit > rope.number("original_max_position_embeddings")


def _dynamic_base(rope: RopeParameters) -> float:
    power = rope.rotary_dim / (rope.rotary_dim - 2)
    fields = dict(rope.scaling)
    if "alpha" in fields:
        return float(rope.theta * rope.number("alpha") ** power)
    factor = rope.number("factor")
    trained = rope.number("max_trained_positions", rope.max_position_embeddings)
    growth = factor * rope.max_position_embeddings / trained - (factor - 1)
    return float(rope.theta * growth**power)


def _llama3(plain: torch.Tensor, rope: RopeParameters) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    original = rope.number("original_max_position_embeddings")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    factor = rope.number("factor")
    wavelengths = 2 * math.pi / plain
    blend = (original / wavelengths - low) / (high - low) if low != high else torch.zeros(())
    between = (1 - blend) * plain / factor + blend * plain
    stretched = torch.where(wavelengths > original / low, plain / factor, between)
    return torch.where(wavelengths < original / high, plain, stretched)


def _yarn(rope: RopeParameters, exponents: torch.Tensor) -> torch.Tensor:
    """Fast pairs keep their frequency, slow ones are divided by the factor, with a ramp."""
    original = rope.number("original_max_position_embeddings")

    def pair_with(turns: float) -> float:
        """Index of the pair that makes `turns` full turns over the original context."""
        ratio = math.log(original / (turns * 2 * math.pi))
        return rope.rotary_dim * ratio / (2 * math.log(rope.theta))

    first = pair_with(rope.number("beta_fast", 32))
    last = pair_with(rope.number("beta_slow", 1))
    if rope.number("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.rotary_dim - 1)
    if first == last:
        last += 0.001  # as upstream: a step instead of a division by zero
    steps = torch.arange(rope.rotary_dim // 2, dtype=torch.float32)
    ramp = ((steps - first) / (last - first)).clamp(0, 1)
    kept = (1 - ramp) * rope.number("extrapolation_factor", 1.0)
    periods = rope.theta**exponents
    slow = 1.0 / (rope.number("factor") * periods)
    fast = 1.0 / periods
    return slow * (1 - kept) + fast * kept
