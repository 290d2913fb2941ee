# SPDX-License-Identifier: Apache-2.0
"""Ask vLLM itself how its CPU attention packs a block of keys and values here.

vLLM chooses the packing from the CPU, dtype, block and head size, in a function
that its worker calls too; that names the instruction set. Then vLLM's own
cache-writing operator is given tensors in which every element is different, and
the layout is accepted only if it would have written the same bytes. So a packing
that kvseal has wrong, or that a new vLLM changed, is refused before any KV is
touched. Takes milliseconds; must run on the engine's machine, in its environment.
Called by kvseal.engines.sdk.
"""

from __future__ import annotations

import torch

from kvseal.errors import LayoutError
from kvseal.layouts.base import DTYPES, KVGeometry
from kvseal.layouts.cpu_blocks import CpuBlockLayout
from kvseal.layouts.registry import cpu_candidates


def vllm_isa(geometry: KVGeometry) -> str:
    """Return vLLM's name of the instruction set it uses for `geometry` on this machine.

    Raises:
        LayoutError: when the installed vLLM has no such function or refuses the geometry.
    """
    try:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
    except (ImportError, AttributeError) as error:
        raise LayoutError(
            f"the installed vLLM does not say how its CPU attention packs KV ({error})",
            expected="vllm.v1.attention.backends.cpu_attn._get_attn_isa, as in vLLM 0.28.0",
        ) from error
    try:
        return str(
            _get_attn_isa(geometry.dtype, geometry.block_size_tokens, geometry.head_size, "auto")
        )
    except NotImplementedError as error:
        raise LayoutError(f"vLLM's CPU attention can't serve this geometry: {error}") from error


def operator_confirms(layout: CpuBlockLayout) -> bool:
    """True when vLLM's operator writes two blocks exactly as `layout`, of one layer, packs them.

    Raises:
        LayoutError: when the operator can't run `layout.isa` on this machine.
    """
    from vllm import _custom_ops

    geometry = layout.geometry
    block, heads, size = geometry.block_size_tokens, geometry.kv_heads, geometry.head_size
    tokens = 2 * block
    bits = torch.int16 if geometry.dtype.itemsize == 2 else torch.int32
    numbers = torch.arange(2 * tokens * heads * size).reshape(2, tokens, heads, size)
    # Two passes give each element a pair of numbers that no other element has; both stay
    # below the bit patterns of infinities and NaNs, which an operator might rewrite.
    for part in (numbers % 30000, numbers // 30000):
        keys, values = part.to(bits).view(geometry.dtype)
        cache = torch.zeros((2, heads, 2 * block, size), dtype=geometry.dtype)
        key_cache, value_cache = cache.chunk(2, dim=2)
        try:
            _custom_ops.cpu_attn_reshape_and_cache(
                keys, values, key_cache, value_cache, torch.arange(tokens), layout.isa
            )
        except (RuntimeError, AttributeError) as error:
            raise LayoutError(
                f"vLLM's cache-writing operator does not run {layout.isa!r} here",
                value=str(error).splitlines()[0],
                remedy="a packing that its own operator can't confirm is not used",
            ) from error
        # The same memory, cut into rows as LMCache does.
        rows = cache.view(2, heads, block, 2 * size).transpose(1, 2)
        written = rows.reshape(1, 1, tokens, layout.width)
        packed = layout.pack(keys.unsqueeze(0), values.unsqueeze(0))
        if not torch.equal(packed.view(bits), written.contiguous().view(bits)):
            return False
    return True


def confirmed_layout(geometry: KVGeometry) -> CpuBlockLayout:
    """Return the CPU layout that vLLM uses for `geometry` on this machine, proven.

    Raises:
        LayoutError: when vLLM's operator confirms none of the known packings.
    """
    isa = vllm_isa(geometry)
    single_layer = KVGeometry(
        1, geometry.kv_heads, geometry.head_size, geometry.block_size_tokens, geometry.dtype
    )
    candidates = cpu_candidates(isa, geometry)
    for layout, probe in zip(candidates, cpu_candidates(isa, single_layer), strict=True):
        if operator_confirms(probe):
            return layout
    raise LayoutError(
        "vLLM's cache-writing operator packs KV in a way that no layout here knows",
        option="instruction set of vLLM's CPU attention",
        value=f"{isa} with {DTYPES[geometry.dtype]}",
        expected=" or ".join(layout.name for layout in candidates),
        remedy="use vLLM 0.28.0, or report the version; nothing was read or written",
    )
