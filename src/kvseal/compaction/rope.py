# SPDX-License-Identifier: Apache-2.0
"""Moves keys from one position to another, exactly as the engine would have rotated them.

What *exact* means. An engine multiplies each pair of key elements, read as a
complex number, by an entry of its rotary table: `key = pair * table[p]`. A key
moved to position p' must be `pair * table[p']`, so it is multiplied by
`table[p'] / table[p]`, where `table` is the engine's own, with its rounding:

* frequencies and angles in float32, in the order of operations that vLLM
  uses. At position 100,000 a float32 angle is off by up to 4e-3 rad from the
  true one, so a rotation by the true difference would miss the engine's key.
* cosine and sine rounded to the model's dtype, as vLLM keeps its cache. A
  rounded entry is no pure rotation; dividing by it undoes what was done.
* the attention scale of yarn and longrope, which vLLM multiplies into cosine
  and sine. Keys carry it; it cancels in the quotient of one table.

With one table, no position moved means a factor of exactly one: keys come back
bit for bit. The quotient is formed in float64, the product in float32, and the
result has the dtype of the keys.

Which table. An engine has one table for its life, dynamic and longrope included
(`kvseal.compaction.rotary_table`), so keys of a longer prompt and queries of the
shorter one meet in the same table as long as one engine configuration serves
both. Where producer and consumer differ, pass the consumer's as `target`: two
tables of one geometry are still exact, two geometries are refused.

Remaining error: the key that comes in was rounded to its dtype once already,
and an engine that builds its table on a GPU may differ from the CPU in the
last bit of a frequency. Never imports an engine; called by the transforms.
"""

from __future__ import annotations

import torch

from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.rotary_table import rotary_table
from kvseal.errors import TransformError

KEY_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def rerotation_factors(
    old_positions: torch.Tensor,
    new_positions: torch.Tensor,
    rope: RopeParameters,
    *,
    target: RopeParameters | None = None,
    table_dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`table[new] / table[old]` as real and imaginary part, float32 `[tokens, rotary_dim / 2]`."""
    target = rope if target is None else target
    geometry = ("head_size", "rotary_dim", "interleaved")
    if any(getattr(rope, name) != getattr(target, name) for name in geometry):
        raise TransformError(
            "source and target rotate different elements: no re-rotation leads from one to the"
            " other",
            option="target",
            value=tuple(getattr(target, name) for name in geometry),
            expected=f"{geometry} equal to the source's",
        )
    if old_positions.shape != new_positions.shape:
        raise TransformError(
            "each key needs one old and one new position",
            option="new_positions",
            value=list(new_positions.shape),
            expected=str(list(old_positions.shape)),
        )
    old_cos, old_sin = (t.double() for t in rotary_table(old_positions, rope, table_dtype))
    new_cos, new_sin = (t.double() for t in rotary_table(new_positions, target, table_dtype))
    norm = old_cos.square() + old_sin.square()
    real = (new_cos * old_cos + new_sin * old_sin) / norm
    imaginary = (new_sin * old_cos - new_cos * old_sin) / norm
    return real.float(), imaginary.float()


def rerotate_layer(
    keys: torch.Tensor, factors: tuple[torch.Tensor, torch.Tensor], rope: RopeParameters
) -> torch.Tensor:
    """Multiply the pairs of one layer's keys `[tokens, kv_heads, head_size]` by `factors`."""
    real, imaginary = (part.to(keys.device)[:, None, :] for part in factors)
    wide = keys.to(torch.float64 if keys.dtype == torch.float64 else torch.float32)
    half = rope.rotary_dim // 2
    if rope.interleaved:
        first, second = slice(0, rope.rotary_dim, 2), slice(1, rope.rotary_dim, 2)
    else:
        first, second = slice(0, half), slice(half, rope.rotary_dim)
    moved = torch.empty_like(keys)
    moved[..., first] = (wide[..., first] * real - wide[..., second] * imaginary).to(keys.dtype)
    moved[..., second] = (wide[..., second] * real + wide[..., first] * imaginary).to(keys.dtype)
    moved[..., rope.rotary_dim :] = keys[..., rope.rotary_dim :]
    return moved


def rerotate(
    keys: torch.Tensor,
    old_positions: torch.Tensor,
    new_positions: torch.Tensor,
    rope: RopeParameters,
    *,
    target: RopeParameters | None = None,
    table_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Keys as the engine would have written them at `new_positions`.

    `keys` is `[layers, tokens, kv_heads, head_size]`, already rotated at
    `old_positions` (int64 `[tokens]`) by the table of `rope`; the result has
    its shape, dtype and device. `table_dtype` is the dtype that the engine
    keeps its table in, that of the keys unless given (give it when the keys
    were widened on the way here).

    Raises: TransformError for shapes, dtypes or positions that don't fit.

    Source: RoFormer arXiv 2104.09864 section 3.2; for tables see the module text.
    """
    if keys.dtype not in KEY_DTYPES or keys.dim() != 4 or keys.shape[-1] != rope.head_size:
        raise TransformError(
            "keys don't fit the rotary embedding",
            option="keys",
            value=f"{keys.dtype} {list(keys.shape)}",
            expected=f"a float tensor [layers, tokens, kv_heads, {rope.head_size}]",
        )
    if keys.shape[1:2] != old_positions.shape:
        raise TransformError(
            "each key needs one old and one new position",
            option="old_positions",
            value=list(old_positions.shape),
            expected=f"[{keys.shape[1]}]",
        )
    factors = rerotation_factors(
        old_positions, new_positions, rope, target=target, table_dtype=table_dtype or keys.dtype
    )
    moved = torch.empty_like(keys)
    for layer in range(keys.shape[0]):
        moved[layer] = rerotate_layer(keys[layer], factors, rope)
    return moved
