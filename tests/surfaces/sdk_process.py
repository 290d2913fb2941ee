# SPDX-License-Identifier: Apache-2.0
"""A client of one LMCache server in a process of its own: orders in, answers out, a line each.

Several LMCaches take part in one test, and a process imports one. Stores and
loads go through LMCache's own SDK classes (`kvseal.engines.sdk_connect`), the
`worker-store` through the transfer context that LMCache gives to an engine's
worker, over a tensor in memory. No engine is needed: the geometry is made up.
Run by `sdk_client.py` with the LMCache in question first on its path.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lmcache.sdk.context import LMCacheSDKError
from lmcache.sdk.wrapper.contiguous import ContiguousTransferWrapper
from lmcache.v1.multiprocess.transfer_context import worker_transfer

from kvseal.engines.geometry import EngineGeometry
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.sdk_connect import open_channel
from kvseal.errors import KvsealError
from kvseal.identity.parts import TensorParallel
from kvseal.layouts.base import KVGeometry

LAYERS, HEADS, HEAD_SIZE, BLOCK = 2, 2, 8, 16
SECONDS = 30.0
KV_EVENTS = 1024
"""The most that LMCache hands over at once."""
REFUSALS = (
    KvsealError,
    LMCacheSDKError,
    RuntimeError,
    StopIteration,
    TimeoutError,
    TypeError,
    ValueError,
)
GEOMETRY = EngineGeometry(
    engine_kv_format="NL_X_NB_TWO_NH_BS_HS",
    kv=KVGeometry(LAYERS, HEADS, HEAD_SIZE, BLOCK, torch.float32),
    query_heads=HEADS,
    captures_queries=False,
    tensor_parallel=TensorParallel(1, HEADS),
)


def payload(tokens: int, seed: int) -> torch.Tensor:
    """Return KV `[planes, layers, tokens, width]` that only this seed has."""
    made = torch.Generator().manual_seed(seed)
    return torch.rand((2, LAYERS, tokens, HEADS * HEAD_SIZE), generator=made)


def digest(kv: torch.Tensor) -> str:
    """Return a digest of the bytes; a chunk of a client's store comes without its planes."""
    return hashlib.sha256(kv.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


class Client:
    """What can be ordered, a method each; arguments are the order's other fields."""

    def __init__(self, url: str, http_url: str, model_name: str) -> None:
        self._url = url
        self._model_name = model_name
        self._server = LMCacheHTTP(http_url)
        self._stack = contextlib.ExitStack()
        opened = open_channel(
            "kv",
            url=url,
            model_name=model_name,
            geometry=GEOMETRY,
            planes=2,
            server=self._server,
            timeout_seconds=SECONDS,
        )
        self._channel = self._stack.enter_context(opened)
        self._worker: Any = None

    def store(self, tokens: list[int], seed: int, salt: str, variant: str, ask: bool) -> Any:
        """Write as kvseal does; `ask` the server first whether it knows variants."""
        kv = payload(len(tokens), seed)
        if variant and ask:
            self._server.require_variant(variant)
        self._channel.store(kv, tokens, salt, variant)
        return digest(kv)

    def own_store(self, tokens: list[int], seed: int, salt: str, variant: str) -> Any:
        """Write as LMCache's own client does, which asks for itself what the server takes."""
        context, transfer = self._channel.client
        context._transfer_ctx = ContiguousTransferWrapper(transfer, context.chunk_size)
        kv = payload(len(tokens), seed)
        return context.store(
            kv, tokens, cache_salt=salt, **({"variant": variant} if variant else {})
        )

    def retrieve(self, tokens: list[int], salt: str, variant: str) -> Any:
        """Return the digest of all tokens, or how many were found where that is not all."""
        kv = self._channel.retrieve(tokens, salt, variant)
        if kv is None:
            return 0
        found = kv.shape[kv.ndim - 2]
        return digest(kv) if found == len(tokens) else found

    def delete(self, tokens: list[int], salt: str, variant: str) -> Any:
        """Delete from L1 by key and return how many objects there were."""
        return self._channel.delete(tokens, salt, variant)

    def keys(self, tokens: list[int], salt: str, variant: str) -> Any:
        """Return the object keys of the tokens, in their JSON form."""
        return self._channel._object_keys(self._key(tokens, salt, variant), tokens)

    def worker_store(self, tokens: list[int], seed: int, salt: str, variant: str) -> Any:
        """Let the server fetch the KV from a worker's memory, as from an engine."""
        blocks = len(tokens) // BLOCK
        caches = self._worker_caches()
        kv = payload(len(tokens), seed).view(2, LAYERS, blocks, BLOCK, HEADS, HEAD_SIZE)
        for layer, cache in enumerate(caches.values()):
            # Block 0 is an engine's null block, and a chunk of it is not stored.
            cache[1 : blocks + 1].copy_(kv[:, layer].permute(1, 0, 3, 2, 4))
        key = self._key(tokens, salt, variant)
        event = self._recorded_event()
        arguments: list[Any] = [key.request_id, key]
        if not hasattr(self._context, "_req_client"):
            arguments.append(self._context.instance_id + 1)
        arguments += [caches, [list(range(1, blocks + 1))], event, 1]
        done = self._worker.submit_store(*arguments).result(timeout=SECONDS)
        self._context.end_session(key.request_id)
        return bool(done)

    def kv_events(self, of: str) -> Any:
        """Return what the server's log of KV events holds of a model name (0.5.6)."""
        client = getattr(self._context, "_req_client", None)
        if client is None or not hasattr(client, "subscribe_kv_events"):
            return None
        stream = client.subscribe_kv_events(self._context.instance_id, of, 0, KV_EVENTS)
        # What is there comes at once, and after that only what is new.
        end = threading.Timer(SECONDS, stream.close)
        end.start()
        try:
            batch = next(stream)
        finally:
            end.cancel()
            stream.close()
        return [[e.kind, list(getattr(e, "token_ids", None) or ())] for e in batch.events]

    def close(self) -> None:
        """Unregister, which takes a minute where the server is gone."""
        self._stack.close()

    @property
    def _context(self) -> Any:
        return self._channel.client[0]

    def _key(self, tokens: list[int], salt: str, variant: str) -> Any:
        return self._channel._key(tokens, salt, f"surfaces-{uuid.uuid4().hex}", variant)

    def _worker_caches(self) -> dict[str, torch.Tensor]:
        if self._worker is None:
            shape = (64, 2, HEADS, BLOCK, HEAD_SIZE)
            self._caches = {f"layer.{i}": torch.zeros(shape) for i in range(LAYERS)}
            context = self._context
            name, number = self._model_name, context.instance_id + 1
            if hasattr(context, "_req_client"):
                self._worker = worker_transfer.create_transfer_context(
                    self._caches,
                    mode="lmcache_driven",
                    instance_id=number,
                    req_client=context._req_client,
                )
                self._worker.register(self._caches, name, 1, 1, SECONDS, layout_hints=self._hints())
            else:
                from lmcache.integration.vllm.vllm_multi_process_adapter import (
                    send_lmcache_request,
                )

                self._worker = worker_transfer.create_transfer_context(
                    self._caches, mode="lmcache_driven"
                )
                self._worker.register(
                    number,
                    self._caches,
                    name,
                    1,
                    1,
                    context._mq_client,
                    SECONDS,
                    send_request=send_lmcache_request,
                    layout_hints=self._hints(),
                )
        return self._caches

    def _hints(self) -> Any:
        from lmcache.sdk.context import LayoutHints

        return LayoutHints(
            kv_layout="HND", num_kv_heads=HEADS, tokens_per_block=BLOCK, head_dim=HEAD_SIZE
        )

    def _recorded_event(self) -> Any:
        if hasattr(self._worker, "create_recorded_event"):
            return self._worker.create_recorded_event()
        from lmcache import torch_dev

        event = self._worker._event_backend.create_event(self._worker._device)
        self._worker._event_backend.record_event(event, torch_dev.current_stream())
        return event


def main() -> None:
    """Answer orders until the input ends. LMCache logs to standard output, so answers don't."""
    _remove_segments()  # of a client before, that had this process's number
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    client: Client | None = None
    for order in _orders():
        name = order.pop("do")
        try:
            answer = None
            if name == "connect":
                client = Client(**order)
            elif name == "disconnect":
                client = client and client.close()
            else:
                answer = getattr(client, name)(**order)
            said = {"answer": answer}
        except REFUSALS as error:
            said = {"refused": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(said) + "\n")
    # Whatever is registered still was left behind by a test that failed.
    _remove_segments()
    os._exit(0)


def _remove_segments() -> None:
    """Remove the shared memory that LMCache makes of a worker's caches, named by process."""
    for segment in Path("/dev/shm").glob(f"lmcache_kv_{os.getpid()}_*"):  # noqa: S108
        segment.unlink(missing_ok=True)


def _orders() -> Iterator[dict[str, Any]]:
    for text in sys.stdin:
        yield json.loads(text)


if __name__ == "__main__":
    main()
