# SPDX-License-Identifier: Apache-2.0
"""GPU layout of vLLM before 0.26: K and V in a plane each, token by token.

Source: LMCache 0.5.4's own gather of the four separate formats, which a test
runs; vLLM versions with these formats were not run.
"""

from __future__ import annotations

import torch

from kvseal.layouts.base import DTYPES, KVLayout


class GpuSplitLayout(KVLayout):
    """Plane 0 keys, plane 1 values, rows of `[kv_heads, head_size]`."""

    planes = 2
    block_aligned = False

    @property
    def name(self) -> str:
        """`gpu-token-major-split-<dtype>`."""
        return f"gpu-token-major-split-{DTYPES[self.geometry.dtype]}"

    def _unpack(self, packed: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        geometry = self.geometry
        shape = (geometry.layers, tokens, geometry.kv_heads, geometry.head_size)
        return packed[0].reshape(shape), packed[1].reshape(shape)

    def _pack(self, keys: torch.Tensor, values: torch.Tensor, tokens: int) -> torch.Tensor:
        return torch.stack((keys, values))
