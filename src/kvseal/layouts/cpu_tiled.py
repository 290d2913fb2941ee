# SPDX-License-Identifier: Apache-2.0
"""CPU layout for matrix instructions: keys and values in small tiles.

Matrix units read tiles in which neighbours along the axis that is summed over
stand together, so for bfloat16 a block is cut into tiles of some tokens by some
head elements:

- keys are summed over head elements: `[token tiles][element tiles][tokens][elements]`;
- values are summed over tokens: `[element tiles][token tiles][elements][tokens]`.

Source: the reshape routines of vLLM's csrc/cpu/cpu_attn_amx.hpp (AMX) and
cpu_attn_neon_bfmmla.hpp (Arm BFMMLA), read for the order only. No machine with
these instructions was at hand when this was written, so kvseal uses the layout
only where vLLM's own operator confirms it (kvseal.engines.cpu_packing).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvseal.errors import LayoutError
from kvseal.layouts.base import KVGeometry
from kvseal.layouts.cpu_blocks import CpuBlockLayout


@dataclass(frozen=True)
class Tile:
    """Tokens and head elements in one tile."""

    tokens: int
    elements: int


@dataclass(frozen=True)
class TilePacking:
    """Tiles of a matrix unit for keys and for values."""

    name: str
    keys: Tile
    values: Tile


AMX = TilePacking("amx16x2", keys=Tile(16, 2), values=Tile(2, 16))
BFMMLA = TilePacking("bfmmla8x4", keys=Tile(8, 4), values=Tile(4, 2))


class CpuTiledLayout(CpuBlockLayout):
    """Keys and values of each (block, head) in the tiles of one matrix unit."""

    def __init__(self, geometry: KVGeometry, isa: str, tiles: TilePacking) -> None:
        super().__init__(geometry, isa)
        self.tiles = tiles
        for tile in (tiles.keys, tiles.values):
            if geometry.block_size_tokens % tile.tokens or geometry.head_size % tile.elements:
                raise LayoutError(
                    f"packing {tiles.name} needs whole tiles",
                    value=f"block {geometry.block_size_tokens}, head size {geometry.head_size}",
                    expected=f"multiples of {tile.tokens} tokens and {tile.elements} elements",
                )

    @property
    def packing(self) -> str:
        """Name of the tile packing."""
        return self.tiles.name

    def keys_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        tile, (rows, columns) = self.tiles.keys, self._tiles(self.tiles.keys)
        tiled = run.reshape(*run.shape[:-1], rows, columns, tile.tokens, tile.elements)
        return tiled.transpose(-3, -2).flatten(-4, -3).flatten(-2)

    def keys_to_block(self, keys: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        return self._tiled(keys, self.tiles.keys).transpose(-3, -2).flatten(-4)

    def values_from_block(self, run: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        tile, (rows, columns) = self.tiles.values, self._tiles(self.tiles.values)
        tiled = run.reshape(*run.shape[:-1], columns, rows, tile.elements, tile.tokens)
        # [columns, rows, elements, tokens] -> [rows, tokens, columns, elements]
        return tiled.movedim((-3, -1, -4, -2), (-4, -3, -2, -1)).flatten(-4, -3).flatten(-2)

    def values_to_block(self, values: torch.Tensor) -> torch.Tensor:
        """See CpuBlockLayout."""
        tiled = self._tiled(values, self.tiles.values)
        return tiled.movedim((-2, -4, -1, -3), (-4, -3, -2, -1)).flatten(-4)

    def _tiles(self, tile: Tile) -> tuple[int, int]:
        geometry = self.geometry
        return geometry.block_size_tokens // tile.tokens, geometry.head_size // tile.elements

    def _tiled(self, canonical: torch.Tensor, tile: Tile) -> torch.Tensor:
        """`[..., block, head_size]` to `[..., rows, tokens, columns, elements]`."""
        rows, columns = self._tiles(tile)
        batch = canonical.shape[:-2]
        return canonical.reshape(*batch, rows, tile.tokens, columns, tile.elements)
