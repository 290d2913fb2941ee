# SPDX-License-Identifier: Apache-2.0
"""SnapKV scores: how much the last queries of a prompt attend to each token before them.

For each layer and query head, attention of the last `window_tokens` queries to
all source tokens (softmax over everything each may see, the window included);
mean over those queries and over the query heads of a KV head; then average
pooling along the tokens before the window. Layers are worked one at a time and
tokens in chunks, so no `window x tokens x heads` matrix of a long prompt ever
exists. Never selects and never changes KV; called by `snapkv`.

Source: SnapKV arXiv 2404.14469 section 4 and listing 1. Conventions are those
of kvpress 0.5.5 `SnapKVPress.score` (mean instead of sum over the window, mean
over the group, zero padding counted in the pooling), and the numbers are the
same. Two differences: the result stops before the window (kvpress appends the
maximum plus one for it), and softmax and products are in float32 for every
input dtype (kvpress multiplies in the model's).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from kvseal.compaction.tensors import check_attention_pair
from kvseal.errors import OptionError, TransformError

GRANULARITIES = ("all", "layer", "layer_head")

# Attention weights held at a time, 32 MiB of float32: all of a 4K prompt of a
# small model at once, a few thousand tokens a step of a large one.
_WEIGHTS_HELD = 1 << 23


def snapkv_scores(
    queries: torch.Tensor,
    keys: torch.Tensor,
    *,
    window_tokens: int,
    kernel_tokens: int,
    granularity: str = "all",
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """Scores of the tokens before the window; higher means attended to more.

    `queries` is `[layers, tokens or window_tokens, q_heads, head_size]`, `keys`
    `[layers, tokens, kv_heads, head_size]`, both after RoPE; query head h reads
    KV head h // (q_heads / kv_heads). `softmax_scale` is 1 / sqrt(head_size)
    unless the model uses another.

    Returns `[tokens - window_tokens]` (float64) for granularity "all", the mean
    over layers and heads; `[layers, …]` for "layer"; `[layers, kv_heads, …]`
    (float32 both) for "layer_head". Pooling, being linear, commutes with the means.

    Raises: OptionError, TransformError naming the option or tensor.
    """
    check_attention_pair(queries, keys, window_tokens)
    layers, tokens, _, head_size = keys.shape
    check_window(tokens, window_tokens, kernel_tokens)
    if granularity not in GRANULARITIES:
        raise OptionError(
            "no such granularity of scores",
            option="granularity",
            value=granularity,
            expected=f"one of {', '.join(GRANULARITIES)}",
        )
    scale = 1 / math.sqrt(head_size) if softmax_scale is None else softmax_scale
    window = queries[:, -window_tokens:]
    kept = []
    total = torch.zeros(tokens - window_tokens, dtype=torch.float64, device=keys.device)
    for layer in range(layers):
        weights = _window_attention(window[layer], keys[layer], scale)
        if granularity == "all":
            total += weights.mean(0)
        else:
            kept.append(weights if granularity == "layer_head" else weights.mean(0))
    scores = _pool(total / layers if granularity == "all" else torch.stack(kept), kernel_tokens)
    if not bool(torch.isfinite(scores).all()):
        raise TransformError(
            "scores are not finite: queries or keys hold NaN, infinity or numbers too large",
            option="queries, keys",
            expected="finite queries and keys whose products fit float32",
            remedy="check the layout and dtype that the engine's memory was decoded with",
        )
    return scores


def check_window(source_tokens: int, window_tokens: int, kernel_tokens: int) -> None:
    """Raises OptionError unless the window leaves tokens before it, enough for the kernel."""
    before = source_tokens - window_tokens
    if before < 1:
        raise OptionError(
            "the query window is as long as the prompt, or longer: nothing is left to drop",
            option="snapkv.window_tokens",
            value=window_tokens,
            expected=f"less than the {source_tokens} source tokens",
            remedy="use a smaller window or longer prompts",
        )
    if kernel_tokens > before:
        raise OptionError(
            "the pooling kernel is longer than the part of the prompt that it pools",
            option="snapkv.kernel_tokens",
            value=kernel_tokens,
            expected=f"at most {before}, the source tokens before the window",
            remedy="use a smaller kernel or longer prompts",
        )


def _window_attention(queries: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean attention weight of one layer, float32 `[kv_heads, tokens - window]`.

    `queries` `[window, q_heads, head_size]`, `keys` `[tokens, kv_heads, head_size]`.
    """
    window, q_heads, head_size = queries.shape
    tokens, kv_heads, _ = keys.shape
    group, before = q_heads // kv_heads, tokens - window
    rows = (
        queries.to(torch.float32)
        .view(window, kv_heads, group, head_size)
        .permute(1, 2, 0, 3)
        .reshape(kv_heads, group * window, head_size)
    )
    row_position = torch.arange(before, tokens, device=keys.device).repeat(group)

    def logits(start: int, stop: int) -> torch.Tensor:
        columns = keys[start:stop].to(torch.float32).permute(1, 2, 0)
        part = torch.bmm(rows, columns).mul_(scale)
        if stop > before:  # only the window itself has tokens that come after a query
            position = torch.arange(start, stop, device=keys.device)
            part.masked_fill_(position > row_position[:, None], float("-inf"))
        return part

    step = max(1, _WEIGHTS_HELD // (kv_heads * group * window))
    if step >= tokens:
        return logits(0, tokens).softmax(-1)[..., :before].mean(1)
    # Longer prompts: once for the normaliser of each row, once for the weights.
    # A chunk of the window that a row can't see at all adds exp(-inf) = 0.
    normaliser = torch.full((kv_heads, group * window), float("-inf"), device=keys.device)
    for start in range(0, tokens, step):
        part = logits(start, min(start + step, tokens))
        normaliser = torch.logaddexp(normaliser, part.logsumexp(-1))
    weights = torch.empty(kv_heads, before, device=keys.device)
    for start in range(0, before, step):
        stop = min(start + step, before)
        part = logits(start, stop)
        weights[:, start:stop] = part.sub_(normaliser[..., None]).exp_().mean(1)
    return weights


def _pool(scores: torch.Tensor, kernel_tokens: int) -> torch.Tensor:
    """Average pooling along the last axis, zeros beyond both ends counted."""
    flat = scores.reshape(-1, 1, scores.shape[-1])
    pooled = F.avg_pool1d(flat, kernel_tokens, stride=1, padding=kernel_tokens // 2)
    return pooled.reshape(scores.shape)
