# SPDX-License-Identifier: Apache-2.0
"""What a transform returns: shortened KV and the account of where each row came from.

Holds no manifest, no timing and no layout; checks itself, so that a transform
whose parts disagree is refused before anything can be stored. Made by the
transforms, read by the drivers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvseal.compaction.tensors import check_canonical
from kvseal.errors import TransformError


@dataclass(frozen=True, eq=False)
class Compacted:
    """KV of the retained tokens, canonical, keys rotated at their new positions.

    keys, values: `[layers, retained, kv_heads, head_size]`, dtype of the source.
    retained_positions: int64 `[retained]`, strictly increasing, in the source.
    new_positions: int64 `[retained]`, where the keys stand now (0, 1, 2 …).
    token_ids: the source's token IDs at the retained positions, in order.
    source_tokens: how many tokens the source had.
    granularity: "all" when one selection serves all layers and heads.
    """

    keys: torch.Tensor
    values: torch.Tensor
    retained_positions: torch.Tensor
    new_positions: torch.Tensor
    token_ids: tuple[int, ...]
    source_tokens: int
    granularity: str = "all"

    def __post_init__(self) -> None:
        check_canonical("keys", self.keys)
        check_canonical("values", self.values)
        if self.keys.shape != self.values.shape or self.keys.dtype != self.values.dtype:
            raise _disagree("values", list(self.values.shape), list(self.keys.shape))
        count = self.keys.shape[1]
        if len(self.token_ids) != count:
            raise _disagree("token_ids", len(self.token_ids), count)
        for name in ("retained_positions", "new_positions"):
            positions = getattr(self, name)
            if positions.dtype != torch.int64 or list(positions.shape) != [count]:
                raise _disagree(
                    name, f"{positions.dtype} {list(positions.shape)}", f"torch.int64 [{count}]"
                )
            if bool((positions.diff() <= 0).any()) or int(positions[0]) < 0:
                raise _disagree(name, "not strictly increasing from 0 or more", "increasing")
        if int(self.retained_positions[-1]) >= self.source_tokens:
            raise _disagree(
                "retained_positions",
                int(self.retained_positions[-1]),
                f"below the {self.source_tokens} source tokens",
            )

    @property
    def retained_tokens(self) -> int:
        """How many tokens are left."""
        return self.keys.shape[1]


def _disagree(name: str, value: object, expected: object) -> TransformError:
    return TransformError(
        "the parts of a compacted cache disagree",
        option=name,
        value=value,
        expected=str(expected),
        remedy="this is a defect of the transform that made it",
    )
