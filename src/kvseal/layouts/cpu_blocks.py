# SPDX-License-Identifier: Apache-2.0
"""What vLLM's CPU layouts share: one run of memory for each block and head.

vLLM's CPU attention keeps K and V fused, `[blocks, kv_heads, block, 2 x
head_size]`, but uses the memory of each (block, head) as it likes: all keys of
the block in the kernel's own packing, then all values in theirs. LMCache knows
nothing of that. It cuts each run into `block` equal rows and hands row t of
every head over as "token t", so a row holds parts of many tokens, and slicing
an SDK tensor by token is meaningless. The layouts built on this class know the
packing inside the halves of a run.

Source: vllm 0.28.0 vllm/v1/attention/backends/cpu_attn.py (the halves), lmcache
0.5.4 lmcache/v1/platform/torch_ops.py (the rows).
"""

from __future__ import annotations

import abc

import torch

from kvseal.layouts.base import DTYPES, KVGeometry, KVLayout


class CpuBlockLayout(KVLayout):
    """Fused CPU layout; subclasses say how a block's keys and values are packed."""

    planes = 1
    block_aligned = True

    def __init__(self, geometry: KVGeometry, isa: str) -> None:
        super().__init__(geometry)
        self.isa = isa

    @property
    def name(self) -> str:
        """`cpu-<instruction set>-<packing>-hnd-fused-b<block>-<dtype>`."""
        geometry = self.geometry
        return (
            f"cpu-{self.isa}-{self.packing}-hnd-fused-"
            f"b{geometry.block_size_tokens}-{DTYPES[geometry.dtype]}"
        )

    @property
    @abc.abstractmethod
    def packing(self) -> str:
        """Name of the packing inside a block."""

    @abc.abstractmethod
    def keys_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """`[..., block x head_size]` packed to `[..., block, head_size]`."""

    @abc.abstractmethod
    def keys_to_block(self, keys: torch.Tensor) -> torch.Tensor:
        """The inverse of `keys_from_block`."""

    @abc.abstractmethod
    def values_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """`[..., block x head_size]` packed to `[..., block, head_size]`."""

    @abc.abstractmethod
    def values_to_block(self, values: torch.Tensor) -> torch.Tensor:
        """The inverse of `values_from_block`."""

    def _unpack(self, packed: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        geometry = self.geometry
        block, heads, size = geometry.block_size_tokens, geometry.kv_heads, geometry.head_size
        blocks = tokens // block
        rows = packed.view(geometry.layers, blocks, block, heads, 2 * size)
        runs = rows.transpose(2, 3).reshape(geometry.layers, blocks, heads, 2, block * size)
        canonical = (geometry.layers, tokens, heads, size)
        keys = self.keys_from_block(runs[..., 0, :]).transpose(2, 3).reshape(canonical)
        values = self.values_from_block(runs[..., 1, :]).transpose(2, 3).reshape(canonical)
        return keys, values

    def _pack(self, keys: torch.Tensor, values: torch.Tensor, tokens: int) -> torch.Tensor:
        geometry = self.geometry
        block, heads, size = geometry.block_size_tokens, geometry.kv_heads, geometry.head_size
        blocked = (geometry.layers, tokens // block, block, heads, size)
        runs = torch.stack(
            (
                self.keys_to_block(keys.reshape(blocked).transpose(2, 3)),
                self.values_to_block(values.reshape(blocked).transpose(2, 3)),
            ),
            dim=-2,
        )
        rows = runs.reshape(geometry.layers, tokens // block, heads, block, 2 * size)
        return rows.transpose(2, 3)
