# SPDX-License-Identifier: Apache-2.0
"""Register with an LMCache server through its SDK's parts, with explicit geometry.

The SDK's own way reads the geometry from a text that LMCache 0.5.4 and 0.5.6
can't write for vLLM's packed layouts. LMCache 0.5.4 and 0.5.6 differ in how
their client is called, and only the two functions at the end know it. Called by
kvseal.engines.sdk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from kvseal.engines.geometry import EngineGeometry
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.sdk_transport import SDKChannel
from kvseal.errors import EngineError


@contextmanager
def open_channel(
    kind: str,
    *,
    url: str,
    model_name: str,
    geometry: EngineGeometry,
    planes: int,
    server: LMCacheHTTP,
    timeout_seconds: float,
) -> Iterator[SDKChannel]:
    """Register one channel with explicit geometry, for the length of a `with` block.

    Args:
        kind: `kv` or `query`.
        geometry: sizes of the engine's KV cache and queries.
        planes: of the KV layout, 1 or 2.

    Raises:
        EngineError: when LMCache's client can't register.
    """
    from lmcache.sdk.context import (
        LayoutHints,
        LMCacheSDKCacheKind,
        LMCacheSDKContext,
        LMCacheSDKError,
        create_transfer_context,
    )

    kv = geometry.kv
    block = kv.block_size_tokens
    # One block of a layer, in the shape that LMCache's format detection on CPU takes for
    # the wanted planes and width. It is never read or written.
    shape: tuple[int, ...]
    if kind == "query":
        shape = (1, block, geometry.query_width)
    elif planes == 1:
        shape = (1, kv.kv_heads, block, 2 * kv.head_size)
    else:
        shape = (1, 2, kv.kv_heads, block, kv.head_size)
    with ExitStack() as stack:
        try:
            context = LMCacheSDKContext(
                url,
                server.base_url,
                model_name,
                kind=LMCacheSDKCacheKind(kind),
                timeout=timeout_seconds,
            )
            stack.callback(context.close)
            context._world_size = 1
            context._num_kv_readers = 1
            hints = LayoutHints(
                kv_layout="HND",
                num_kv_heads=kv.kv_heads if kind == "kv" else 1,
                tokens_per_block=block,
                head_dim=shape[-1],
            )
            caches = {f"layer.{i}": torch.zeros(shape, dtype=kv.dtype) for i in range(kv.layers)}
            blocks = context.chunk_size // block
            transfer = _register(context, caches, blocks, hints, create_transfer_context)
        except (LMCacheSDKError, TimeoutError, ValueError, OSError) as error:
            raise EngineError(
                f"LMCache's SDK could not register with the server at {url}: {error}",
                remedy="start the server with --supported-transfer-mode auto and --shm-name NAME",
            ) from error
        stack.callback(_unmap, transfer)
        stack.callback(_leave, context, timeout_seconds)
        yield SDKChannel(context, transfer.engine_driven_context, server, timeout_seconds)


def _leave(context: Any, timeout_seconds: float) -> None:
    with suppress(TimeoutError):  # a server that is gone has nothing to unregister from
        _unregister(context).result(timeout=timeout_seconds)


def _unmap(transfer: Any) -> None:
    with suppress(BufferError):  # a traceback may hold a view; the process's end unmaps it
        transfer.close()


def _register(
    context: Any, caches: dict[str, torch.Tensor], blocks: int, hints: Any, create: Any
) -> Any:
    """Create and register a transfer context; the mode is given, whatever the environment says."""
    name, timeout = context._model_name, context._mq_timeout
    if hasattr(context, "_req_client"):  # 0.5.6
        client = context._req_client
        transfer = create(
            caches, mode="engine_driven", instance_id=context.instance_id, req_client=client
        )
        transfer.register(caches, name, 1, blocks, timeout, layout_hints=hints)
        return transfer
    from lmcache.integration.vllm.vllm_multi_process_adapter import send_lmcache_request

    transfer = create(caches, mode="engine_driven")
    transfer.register(
        context.instance_id,
        caches,
        name,
        1,
        blocks,
        context._mq_client,
        timeout,
        send_request=send_lmcache_request,
        layout_hints=hints,
    )
    return transfer


def _unregister(context: Any) -> Any:
    """Send the request that ends a registration; returns its future."""
    if hasattr(context, "_req_client"):  # 0.5.6
        return context._req_client.unregister_kv_cache_engine_driven_context(context.instance_id)
    from lmcache.v1.multiprocess.protocol import RequestType, get_response_class

    request = RequestType.UNREGISTER_KV_CACHE_ENGINE_DRIVEN_CONTEXT
    return context._mq_client.submit_request(
        request, [context.instance_id], get_response_class(request)
    )
