# SPDX-License-Identifier: Apache-2.0
"""What canonical queries, keys and values must look like, checked once at the door.

Canonical is `[layers, tokens, heads, head_size]`, float32, float16 or bfloat16
(float64 in tests), keys and queries after RoPE. Never changes a tensor; called
by the scores, the transforms and the type they return.
"""

from __future__ import annotations

import torch

from kvseal.errors import TransformError

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_canonical(name: str, tensor: torch.Tensor) -> None:
    """Raises TransformError unless `tensor` is non-empty, float, and of four axes."""
    if tensor.dim() != 4 or tensor.dtype not in FLOAT_DTYPES or 0 in tensor.shape:
        raise TransformError(
            f"{name} are not canonical",
            option=name,
            value=f"{tensor.dtype} {list(tensor.shape)}",
            expected="non-empty float [layers, tokens, heads, head_size]",
            remedy="decode the engine's memory with kvseal.layouts first",
        )


def check_attention_pair(queries: torch.Tensor, keys: torch.Tensor, window_tokens: int) -> None:
    """Raises TransformError unless `queries` can have attended to `keys`.

    `queries` hold all source tokens or just the last `window_tokens`: a
    retrieve that lost rows anywhere would misplace the window.
    """
    check_canonical("queries", queries)
    check_canonical("keys", keys)
    layers, tokens, kv_heads, head_size = keys.shape
    if (queries.shape[0], queries.shape[3]) != (layers, head_size) or queries.shape[2] % kv_heads:
        raise TransformError(
            "queries and keys are not from the same model",
            option="queries",
            value=list(queries.shape),
            expected=f"[{layers}, tokens, a multiple of {kv_heads}, {head_size}]",
        )
    if queries.shape[1] not in (tokens, window_tokens):
        raise TransformError(
            "queries and keys cover different tokens",
            option="queries",
            value=f"{queries.shape[1]} tokens",
            expected=f"{tokens} tokens as the keys, or the last {window_tokens}",
            remedy="retrieve queries and KV of the same request",
        )
    if queries.device != keys.device:
        raise TransformError(
            "queries and keys are on different devices",
            option="queries",
            value=str(queries.device),
            expected=str(keys.device),
        )


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Raises TransformError where a layer of `tensor` holds NaN or infinity.

    Looks at one layer at a time through its extremes, which are NaN if any
    element is: no mask the size of the cache is ever made.
    """
    for layer in range(tensor.shape[0]):
        low, high = torch.aminmax(tensor[layer])
        if not bool(torch.isfinite(low) & torch.isfinite(high)):
            raise TransformError(
                f"{name} hold NaN or infinity",
                option=name,
                value=f"layer {layer}: extremes {float(low)}, {float(high)}",
                expected="finite numbers",
                remedy="check the layout and dtype that the engine's memory was decoded with",
            )
