# SPDX-License-Identifier: Apache-2.0
"""LMCache's own request stream, on a registration that its own client can't make.

LMCache's SDK can't register with an engine of a packed KV layout
(docs/upstream-notes.md), so its stream, as it is installed, is put on the
channel of `KVCacheSDK`. What is stored and asked then goes through LMCache's
code and not through ours. Called by the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvseal.engines.sdk import KVCacheSDK


class WithPlanes:
    """A transport whose slots have the plane axis that LMCache's client expects.

    The server leaves it out of what a client stores into a layout of one plane.
    """

    def __init__(self, transfer: Any) -> None:
        self._transfer = transfer

    def prepare_store(self, key: Any, instance_id: int) -> Any:
        """Reserve, and return slots `[planes, layers, tokens, width]` with their chunks."""
        reserved = self._transfer.prepare_store(key, instance_id)
        if reserved is None:
            return None
        slots, chunks = reserved
        return [_with_plane(slot) for slot in slots], chunks

    def prepare_retrieve(self, key: Any, instance_id: int) -> Any:
        """Return what was found, in the same shape."""
        slots = self._transfer.prepare_retrieve(key, instance_id)
        return slots and [_with_plane(slot) for slot in slots]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transfer, name)


def _with_plane(slot: Any) -> Any:
    return slot.unsqueeze(0) if slot.ndim == 3 else slot


def lmcache_stream(
    sdk: KVCacheSDK,
    post_completion: Callable[..., Any],
    token_ids: Sequence[int],
    cache_salt: str,
) -> Any:
    """Return LMCache's `LMCacheRequestStream` over `token_ids`.

    `post_completion` is LMCache's: prompt, sampling parameters, salt, and what is
    to stand in kv_transfer_params.
    """
    from lmcache.sdk.request import create_request
    from lmcache.sdk.wrapper.contiguous import ContiguousTransferWrapper

    context, transfer = sdk.lmcache_client()
    context._transfer_ctx = ContiguousTransferWrapper(WithPlanes(transfer), context.chunk_size)
    return create_request([context], post_completion, list(token_ids), cache_salt)
