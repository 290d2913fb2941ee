# SPDX-License-Identifier: Apache-2.0
"""GPU layout of vLLM 0.26 and later: K and V of a token and head side by side.

The engine's tensor is `[blocks, block, kv_heads, 2 x head_size]` (or with heads
before tokens); LMCache hands both over token by token as `[tokens, kv_heads,
K then V]`, so any number of tokens can be cut.

Source: seen on an H200 with vLLM 0.28.0 and LMCache 0.5.4, in float32, float16
and bfloat16 (docs/evidence/h200); LMCache's own gather, which a test runs on
both orders.
"""

from __future__ import annotations

import torch

from kvseal.layouts.base import DTYPES, KVLayout


class GpuPackedLayout(KVLayout):
    """Rows of `[kv_heads, K | V]`, one for each token."""

    planes = 1
    block_aligned = False

    @property
    def name(self) -> str:
        """`gpu-token-major-fused-<dtype>`."""
        return f"gpu-token-major-fused-{DTYPES[self.geometry.dtype]}"

    def _unpack(self, packed: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        geometry = self.geometry
        pairs = packed.view(geometry.layers, tokens, geometry.kv_heads, 2, geometry.head_size)
        return pairs[..., 0, :], pairs[..., 1, :]

    def _pack(self, keys: torch.Tensor, values: torch.Tensor, tokens: int) -> torch.Tensor:
        return torch.stack((keys, values), dim=-2)
