# SPDX-License-Identifier: Apache-2.0
"""Damage to the KV of one stored chunk: what a wrong gather, hash or copy would leave.

Each fault takes keys and values `[layers, tokens, kv_heads, head_size]` of a
whole prefix and returns copies in which the chunk `[start, stop)` is wrong.
Nothing here talks to a store; `kvseal.engines.sdk` reads and writes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Chunk:
    """KV of a prefix, the chunk to damage, and KV of another prompt at the same positions."""

    keys: torch.Tensor
    values: torch.Tensor
    start: int
    stop: int
    other_keys: torch.Tensor
    other_values: torch.Tensor
    draw: random.Random

    def copies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies of keys and values."""
        return self.keys.clone(), self.values.clone()

    def layer(self) -> int:
        """Draw a layer."""
        return self.draw.randrange(self.keys.shape[0])


Fault = Callable[[Chunk], tuple[torch.Tensor, torch.Tensor]]


def unchanged(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The same bytes, written anew: whoever reports this one reports the writing."""
    return chunk.copies()


def one_bit(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The highest exponent bit of one key element of one token, layer and head."""
    keys, values = chunk.copies()
    token = chunk.draw.randrange(chunk.start, chunk.stop)
    head = chunk.draw.randrange(keys.shape[2])
    element = chunk.draw.randrange(keys.shape[3])
    row = keys[chunk.layer(), token, head, element : element + 1]
    row.copy_(_flip(row, _top_exponent_bit(row.dtype)))
    return keys, values


def low_bytes(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The low byte of every value element of the whole chunk, all layers: noise."""
    keys, values = chunk.copies()
    part = values[:, chunk.start : chunk.stop]
    part.copy_(_flip(part, 0xFF))
    return keys, values


def values_zero_layer(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of one layer zero."""
    keys, values = chunk.copies()
    values[chunk.layer(), chunk.start : chunk.stop] = 0
    return keys, values


def zero(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all layers zero."""
    keys, values = chunk.copies()
    keys[:, chunk.start : chunk.stop] = 0
    values[:, chunk.start : chunk.stop] = 0
    return keys, values


def layers_swapped(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """Two layers in each other's place."""
    keys, values = chunk.copies()
    one, other = chunk.draw.sample(range(keys.shape[0]), 2)
    where = slice(chunk.start, chunk.stop)
    for part, source in ((keys, chunk.keys), (values, chunk.values)):
        part[one, where], part[other, where] = source[other, where], source[one, where]
    return keys, values


def rolled(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """Every token's keys and values one place on, the last one's first.

    Harmless: keys carry their positions, and attention adds up in any order.
    """
    keys, values = chunk.copies()
    where = slice(chunk.start, chunk.stop)
    keys[:, where] = chunk.keys[:, where].roll(1, dims=1)
    values[:, where] = chunk.values[:, where].roll(1, dims=1)
    return keys, values


def shifted(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """Every token's KV is its left neighbour's: the first doubled, the last lost."""
    keys, values = chunk.copies()
    for part, source in ((keys, chunk.keys), (values, chunk.values)):
        part[:, chunk.start + 1 : chunk.stop] = source[:, chunk.start : chunk.stop - 1]
    return keys, values


def values_shifted(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The values alone are the left neighbour's, as after a gather with two offsets."""
    keys, values = chunk.copies()
    where = slice(chunk.start, chunk.stop)
    values[:, where] = chunk.values[:, where].roll(1, dims=1)
    return keys, values


def foreign(chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The chunk of another prompt at the same positions."""
    keys, values = chunk.copies()
    where = slice(chunk.start, chunk.stop)
    keys[:, where] = chunk.other_keys[:, where]
    values[:, where] = chunk.other_values[:, where]
    return keys, values


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        unchanged,
        one_bit,
        low_bytes,
        values_zero_layer,
        zero,
        layers_swapped,
        rolled,
        shifted,
        values_shifted,
        foreign,
    )
}

_INTEGER = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def _top_exponent_bit(dtype: torch.dtype) -> int:
    """The bit below the sign. Source: IEEE 754; bfloat16 is the upper half of a float32."""
    return 1 << (30 if dtype == torch.float32 else 14)


def _flip(part: torch.Tensor, mask: int) -> torch.Tensor:
    """Return `part` with the bits of `mask` inverted in every element."""
    whole = part.contiguous()
    return (whole.view(_INTEGER[part.dtype]) ^ mask).view(part.dtype)
