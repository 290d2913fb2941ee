# SPDX-License-Identifier: Apache-2.0
"""SnapKV: keep the tokens that the end of the prompt attends to, drop the rest.

One selection for all layers and heads, because an engine's prefix cache has
one token list for all of them: a row is a token. The query window is always
kept, kept keys are rotated to dense positions. Never stores, never times
itself; called by the comparison driver with KV that `kvseal.layouts` decoded.

Source: SnapKV arXiv 2404.14469; scores in `kvseal.compaction.scores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from kvseal.compaction.compacted import Compacted
from kvseal.compaction.rope import rerotate_layer, rerotation_factors
from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.scores import check_window, snapkv_scores
from kvseal.compaction.tensors import check_attention_pair, check_canonical, check_finite
from kvseal.errors import OptionError, TransformError

_TIE_STEPS = 1 << 16


@dataclass(frozen=True)
class SnapKV:
    """Options of the transform.

    drop_percent: share of the source tokens to drop, 1 to 99.
    window_tokens: how many of the last queries vote; these tokens always stay.
    kernel_tokens: odd width of the average pooling over scores; 1 is none.
    """

    drop_percent: int
    window_tokens: int = 64
    kernel_tokens: int = 5

    name: ClassVar[str] = "snapkv"
    version: ClassVar[str] = "1"
    granularity: ClassVar[str] = "all"

    def __post_init__(self) -> None:
        _check_option("drop_percent", self.drop_percent, 1, 99)
        _check_option("window_tokens", self.window_tokens, 1, None)
        _check_option("kernel_tokens", self.kernel_tokens, 1, None)
        if self.kernel_tokens % 2 == 0:
            raise OptionError(
                "the pooling kernel needs a middle token",
                option="snapkv.kernel_tokens",
                value=self.kernel_tokens,
                expected="an odd number",
                remedy=f"use {self.kernel_tokens - 1} or {self.kernel_tokens + 1}",
            )

    def retained_count(self, source_tokens: int, chunk_tokens: int = 1) -> int:
        """How many of `source_tokens` stay: at least the share asked for, in whole chunks.

        LMCache stores whole chunks only, so the count is rounded up to a
        multiple of `chunk_tokens`, which may leave it at `source_tokens`.

        Raises: OptionError where source, chunk, window and share don't go together.
        """
        if source_tokens < 1 or chunk_tokens < 1 or source_tokens % chunk_tokens:
            raise OptionError(
                "the source must be whole chunks, as LMCache stores and returns them",
                option="lmcache.chunk_size_tokens",
                value=chunk_tokens,
                expected=f"a divisor of the {source_tokens} source tokens",
                remedy="cut the source to whole chunks; a prompt needs one at least",
            )
        check_window(source_tokens, self.window_tokens, self.kernel_tokens)
        asked = -(-source_tokens * (100 - self.drop_percent) // 100)
        count = -(-asked // chunk_tokens) * chunk_tokens
        if count < self.window_tokens:
            raise OptionError(
                "fewer tokens would be kept than the query window, which always stays",
                option="snapkv.drop_percent, snapkv.window_tokens",
                value=(self.drop_percent, self.window_tokens),
                expected=f"a window of at most {count} of {source_tokens} source tokens",
                remedy="drop less, use a smaller window or longer prompts",
            )
        return count

    def select(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        *,
        chunk_tokens: int = 1,
        softmax_scale: float | None = None,
    ) -> torch.Tensor:
        """Positions to keep, strictly increasing, int64 on the CPU.

        `queries` `[layers, tokens or window_tokens, q_heads, head_size]` and
        `keys` `[layers, tokens, kv_heads, head_size]`, both after RoPE. Scores
        that agree in their first 16 bits are a tie, and ties go to the lower
        position: what is left of a score beyond that is the order in which one
        device happened to add, and must not decide.

        Raises: OptionError, TransformError naming option or tensor.
        """
        check_attention_pair(queries, keys, self.window_tokens)
        tokens = keys.shape[1]
        count = self.retained_count(tokens, chunk_tokens)
        check_finite("queries", queries[:, -self.window_tokens :])
        check_finite("keys", keys)
        scores = snapkv_scores(
            queries,
            keys,
            window_tokens=self.window_tokens,
            kernel_tokens=self.kernel_tokens,
            granularity=self.granularity,
            softmax_scale=softmax_scale,
        )
        mantissa, exponent = torch.frexp(scores.cpu())
        coarse = torch.ldexp((mantissa * _TIE_STEPS).round(), exponent)
        order = torch.sort(coarse, descending=True, stable=True).indices
        best = order[: count - self.window_tokens].sort().values
        return torch.cat([best, torch.arange(tokens - self.window_tokens, tokens)])

    def apply(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        token_ids: Sequence[int],
        rope: RopeParameters,
        *,
        chunk_tokens: int = 1,
        softmax_scale: float | None = None,
    ) -> Compacted:
        """Select, gather and rotate to positions 0, 1, 2 …

        Tensors as in `select`, `values` shaped as `keys`; `token_ids` are the
        source's, one for each key. Results are new tensors on the device and in
        the dtype of `keys`.

        Raises: OptionError, TransformError naming option or tensor.
        """
        check_canonical("values", values)
        if values.shape != keys.shape or values.dtype != keys.dtype or values.device != keys.device:
            raise TransformError(
                "keys and values are not one cache",
                option="values",
                value=f"{values.dtype} {list(values.shape)} {values.device}",
                expected=f"{keys.dtype} {list(keys.shape)} {keys.device}",
            )
        if len(token_ids) != keys.shape[1]:
            raise TransformError(
                "each key needs its token",
                option="token_ids",
                value=f"{len(token_ids)} IDs",
                expected=f"{keys.shape[1]}",
            )
        if keys.shape[3] != rope.head_size:
            raise TransformError(
                "keys and rotary embedding are not of the same model",
                option="rope.head_size",
                value=rope.head_size,
                expected=str(keys.shape[3]),
            )
        check_finite("values", values)
        retained = self.select(
            queries, keys, chunk_tokens=chunk_tokens, softmax_scale=softmax_scale
        )
        new = torch.arange(len(retained))
        factors = rerotation_factors(retained, new, rope, table_dtype=keys.dtype)
        rows = retained.to(keys.device)
        shape = (keys.shape[0], len(retained), *keys.shape[2:])
        new_keys, new_values = keys.new_empty(shape), values.new_empty(shape)
        for layer in range(keys.shape[0]):
            new_keys[layer] = rerotate_layer(keys[layer].index_select(0, rows), factors, rope)
            torch.index_select(values[layer], 0, rows, out=new_values[layer])
        # A float16 key near the end of its range can leave it when it is rotated.
        check_finite("rerotated keys", new_keys)
        return Compacted(
            keys=new_keys,
            values=new_values,
            retained_positions=retained,
            new_positions=new,
            token_ids=tuple(int(token_ids[position]) for position in retained.tolist()),
            source_tokens=keys.shape[1],
            granularity=self.granularity,
        )


def _check_option(name: str, value: int, low: int, high: int | None) -> None:
    bound = f"a whole number from {low}" + ("" if high is None else f" to {high}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(
            "not a whole number", option=f"snapkv.{name}", value=value, expected=bound
        )
    if value < low or (high is not None and value > high):
        raise OptionError("out of range", option=f"snapkv.{name}", value=value, expected=bound)
