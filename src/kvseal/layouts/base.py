# SPDX-License-Identifier: Apache-2.0
"""What every KV layout has in common: a geometry, a name, and two inverse maps.

A layout says where each value of a KV cache stands in the tensor that
LMCache's SDK hands over, so that it can be taken apart into canonical keys and
values, `[layers, tokens, kv_heads, head_size]` each, and put back with every
bit in its place. It never moves a value through arithmetic and never guesses.
Called by kvseal.engines.sdk and by tests; the name goes into records.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import torch

from kvseal.errors import LayoutError

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
"""Element types that KV caches may have here, with the names used in layout names."""


@dataclass(frozen=True)
class KVGeometry:
    """Sizes of one KV cache on one worker.

    `kv_heads` and `head_size` are those of a single layer; all layers are
    alike. `block_size_tokens` is the engine's block, not LMCache's chunk.
    """

    layers: int
    kv_heads: int
    head_size: int
    block_size_tokens: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_size", "block_size_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise LayoutError(
                    "a KV geometry needs whole, positive sizes", option=name, value=value
                )
        if self.dtype not in DTYPES:
            raise LayoutError(
                "no layout knows this KV cache element type",
                option="kv cache dtype",
                value=str(self.dtype),
                expected=", ".join(DTYPES.values()),
                remedy="serve the model without a quantized KV cache",
            )

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token over all layers."""
        itemsize = torch.empty((), dtype=self.dtype).element_size()
        return 2 * self.layers * self.kv_heads * self.head_size * itemsize


class KVLayout(abc.ABC):
    """One way in which keys and values stand in an SDK tensor.

    An SDK tensor is `[planes, layers, tokens, width]`: `planes` is 1 where K
    and V share a row and 2 where they have a tensor each.
    """

    planes: ClassVar[int]
    block_aligned: ClassVar[bool]
    """True where tokens of one block are interleaved: only whole blocks have a meaning."""

    def __init__(self, geometry: KVGeometry) -> None:
        self.geometry = geometry

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Text that identifies the layout in records, sizes excluded but block and dtype."""

    @property
    def width(self) -> int:
        """Elements in the last axis of an SDK tensor."""
        geometry = self.geometry
        return geometry.kv_heads * geometry.head_size * (2 if self.planes == 1 else 1)

    def unpack(self, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take an SDK tensor apart.

        Args:
            packed: `[planes, layers, tokens, width]`, or without the leading
                axis where there is one plane.

        Returns:
            Keys and values, each contiguous `[layers, tokens, kv_heads, head_size]`.

        Raises:
            LayoutError: when shape or dtype are not this layout's, or `tokens`
                cuts a block.
        """
        if self.planes == 1 and packed.ndim == 3:
            packed = packed.unsqueeze(0)
        self.check(packed)
        keys, values = self._unpack(packed.contiguous(), packed.shape[2])
        return keys.contiguous(), values.contiguous()

    def pack(self, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Put canonical keys and values together; the exact inverse of `unpack`.

        Args:
            keys, values: `[layers, tokens, kv_heads, head_size]` each.

        Returns:
            Contiguous `[planes, layers, tokens, width]`.

        Raises:
            LayoutError: as `unpack`.
        """
        geometry = self.geometry
        tokens = keys.shape[1] if keys.ndim == 4 else 0
        shape = (geometry.layers, tokens, geometry.kv_heads, geometry.head_size)
        self._expect(keys, shape, "keys")
        self._expect(values, shape, "values")
        self.check_tokens(tokens)
        packed = self._pack(keys, values, tokens)
        return packed.reshape(self.planes, geometry.layers, tokens, self.width).contiguous()

    def check(self, packed: torch.Tensor) -> None:
        """Refuse a tensor that is no `[planes, layers, tokens, width]` of this layout.

        Raises:
            LayoutError: as `unpack`.
        """
        tokens = packed.shape[2] if packed.ndim == 4 else 0
        self._expect(packed, (self.planes, self.geometry.layers, tokens, self.width), "SDK tensor")
        self.check_tokens(tokens)

    def check_tokens(self, tokens: int) -> None:
        """Refuse a token count that this layout can't hold.

        Raises:
            LayoutError: when there is no token, or a block would be cut.
        """
        block = self.geometry.block_size_tokens
        if tokens < 1 or (self.block_aligned and tokens % block):
            whole = f"a multiple of the block of {block} tokens"
            raise LayoutError(
                f"layout {self.name} can't hold this number of tokens",
                value=tokens,
                expected=whole if self.block_aligned else "1 or more",
                remedy="retain whole blocks, and let the engine compute the rest",
            )

    @abc.abstractmethod
    def _unpack(self, packed: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Split a checked, contiguous `[planes, layers, tokens, width]` tensor."""

    @abc.abstractmethod
    def _pack(self, keys: torch.Tensor, values: torch.Tensor, tokens: int) -> torch.Tensor:
        """Join checked keys and values into anything that reshapes to the SDK's shape."""

    def _expect(self, tensor: torch.Tensor, shape: tuple[int, ...], what: str) -> None:
        if tuple(tensor.shape) != shape or tensor.dtype != self.geometry.dtype:
            raise LayoutError(
                f"{what} do not fit layout {self.name}",
                value=f"{list(tensor.shape)} {tensor.dtype}",
                expected=f"{list(shape)} {self.geometry.dtype}",
                remedy="the engine's geometry is not the one the layout was made for",
            )
