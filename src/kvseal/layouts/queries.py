# SPDX-License-Identifier: Apache-2.0
"""Layout of captured query tensors: token by token on every platform.

The capture copies what the attention layer was called with, after rotary
embedding, before any kernel packs it.

Source: equal to transformers' rotated queries on CPU and on an H200
(docs/upstream-notes.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvseal.errors import LayoutError
from kvseal.layouts.base import DTYPES


@dataclass(frozen=True)
class QueryLayout:
    """Rows of `[query_heads, head_size]`, one for each token."""

    layers: int
    query_heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """`query-token-major-<dtype>`."""
        return f"query-token-major-{DTYPES[self.dtype]}"

    @property
    def width(self) -> int:
        """Elements in the last axis of an SDK tensor."""
        return self.query_heads * self.head_size

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Split an SDK tensor by head.

        Args:
            packed: `[1, layers, tokens, width]`, or without the leading axis.

        Returns:
            `[layers, tokens, query_heads, head_size]`, contiguous.

        Raises:
            LayoutError: when shape or dtype are not this layout's.
        """
        if packed.ndim == 4 and packed.shape[0] == 1:
            packed = packed[0]
        if (
            packed.ndim != 3
            or packed.shape[0] != self.layers
            or packed.shape[2] != self.width
            or packed.dtype != self.dtype
        ):
            raise LayoutError(
                f"query tensor does not fit layout {self.name}",
                value=f"{list(packed.shape)} {packed.dtype}",
                expected=f"[{self.layers}, tokens, {self.width}] {self.dtype}",
            )
        return packed.reshape(*packed.shape[:2], self.query_heads, self.head_size).contiguous()
