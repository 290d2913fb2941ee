# SPDX-License-Identifier: Apache-2.0
"""Read and write KV caches of a running engine through LMCache's SDK.

LMCache 0.5.4's own client can't connect to an engine with a packed KV layout,
fails to store into one, leaves keys reserved when a store fails half way, takes
a store that wrote nothing for a success and a timed-out lookup for a miss. This
client uses LMCache's transport and keys, registers the geometry explicitly, and
treats each of these as an error (docs/upstream-notes.md has the facts).

It never runs with a GPU in sight: with CUDA in the SDK's process, tensors came
out as zeros. Called by the drivers, in the engine environment, on the engine's
machine; the engine must have registered with the LMCache server before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from kvseal.engines.cpu_packing import confirmed_layout
from kvseal.engines.geometry import EngineGeometry, ModelShape, read_geometry
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.sdk_connect import open_channel
from kvseal.engines.sdk_queries import require_query_ring, wait_for_queries
from kvseal.engines.sdk_transport import SDKChannel
from kvseal.errors import PrerequisiteError, StoreError
from kvseal.layouts import KVLayout, QueryLayout, layout_for


@dataclass(frozen=True)
class StoreReceipt:
    """What a store wrote, and whether its bytes were read back and compared."""

    stored_tokens: int
    chunks: int
    verified: bool
    seconds: float


class KVCacheSDK:
    """One engine's KV cache and captured queries; use as a context manager."""

    def __init__(
        self,
        *,
        url: str,
        http_url: str,
        model_name: str,
        shape: ModelShape,
        device: str,
        timeout_seconds: float = 60.0,
    ) -> None:
        """Connect, and settle the layout before anything is read.

        Args:
            url: message queue of the LMCache server (`tcp://host:port`).
            http_url: its HTTP address.
            model_name: the model as vLLM was started with it (path or repository).
            shape: sizes from the model's config.json.
            device: where the engine's KV cache is, `cpu` or `cuda`.
            timeout_seconds: limit of each request to the server.

        Raises:
            PrerequisiteError: when this process sees a GPU.
            LayoutError: when the KV cache is one that can't be read exactly.
            EngineError: when the server does not answer.
        """
        if torch.cuda.is_available():
            raise PrerequisiteError(
                "the process that uses LMCache's SDK must not see a GPU",
                option="CUDA_VISIBLE_DEVICES",
                value=f"{torch.cuda.device_count()} devices visible",
                expected="an empty value",
                remedy="start this process with CUDA_VISIBLE_DEVICES= (the engine keeps its GPUs)",
            )
        self.server = LMCacheHTTP(http_url, timeout_seconds=timeout_seconds)
        self.model_name = model_name
        self.chunk_size_tokens = self.server.chunk_size_tokens()
        self._address = (url, timeout_seconds)
        self.geometry: EngineGeometry = read_geometry(
            self.server.status(),
            model_name=model_name,
            shape=shape,
            chunk_size_tokens=self.chunk_size_tokens,
        )
        kv = self.geometry.kv
        self.layout: KVLayout = layout_for(
            self.geometry.engine_kv_format,
            device=device,
            geometry=kv,
            cpu_layout=confirmed_layout(kv) if device == "cpu" else None,
        )
        self.query_layout = QueryLayout(
            kv.layers, self.geometry.query_heads, kv.head_size, kv.dtype
        )
        self._stack = ExitStack()
        self._channels: dict[str, SDKChannel] = {}

    def retrieve(
        self, token_ids: Sequence[int], cache_salt: str = "", variant: str = ""
    ) -> torch.Tensor | None:
        """Read the KV of the longest cached prefix of `token_ids`.

        `variant` names transformed KV; empty is ordinary.

        Returns:
            `[planes, layers, tokens, width]` in this engine's layout, `tokens` a
            multiple of the chunk, or None when not one chunk is cached.

        Raises:
            StoreError: for less than a chunk of tokens, or when the server fails.
        """
        packed = self._channel("kv").retrieve(self._whole_chunks(token_ids), cache_salt, variant)
        return None if packed is None else self._with_planes(packed)

    def retrieve_kv(
        self, token_ids: Sequence[int], cache_salt: str = "", variant: str = ""
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """As `retrieve`, as keys and values `[layers, tokens, kv_heads, head_size]`."""
        packed = self.retrieve(token_ids, cache_salt, variant)
        return None if packed is None else self.layout.unpack(packed)

    def store_kv(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        token_ids: Sequence[int],
        cache_salt: str = "",
        *,
        variant: str = "",
        verify: bool = True,
    ) -> StoreReceipt:
        """As `store`, from keys and values `[layers, tokens, kv_heads, head_size]`."""
        return self.store(
            self.layout.pack(keys, values), token_ids, cache_salt, variant=variant, verify=verify
        )

    def store(
        self,
        packed: torch.Tensor,
        token_ids: Sequence[int],
        cache_salt: str = "",
        *,
        variant: str = "",
        verify: bool = True,
    ) -> StoreReceipt:
        """Write `packed` under `token_ids`: every chunk or none.

        Args:
            packed: `[planes, layers, tokens, width]` in this engine's layout.
            token_ids: one for each token; their number a multiple of the chunk.
            cache_salt: as in the requests that shall find it.
            variant: names transformed KV, as in those requests; empty is ordinary.
            verify: read everything back and compare the bytes.

        Raises:
            PrerequisiteError: when the server does not say that it takes variants of
                this scope; nothing is stored.
            StoreError: when some chunk is in the cache already (LMCache never
                overwrites), or anything fails; nothing stays reserved and no
                part stays readable, unless the message says otherwise.
            LayoutError: when the tensor is not in this engine's layout.
        """
        started = time.monotonic()
        if variant:
            self.server.require_variant(variant)
        self.layout.check(packed)
        tokens = list(token_ids)
        if len(tokens) != packed.shape[2] or len(tokens) % self.chunk_size_tokens:
            raise StoreError(
                "a store needs one token ID for each token of KV, in whole chunks",
                value=f"{len(tokens)} IDs, {packed.shape[2]} tokens of KV",
                expected=f"equal, and a multiple of {self.chunk_size_tokens}",
                remedy="leave the rest to the engine, which computes it",
            )
        channel = self._channel("kv")
        channel.store(packed, tokens, cache_salt, variant)
        if verify:
            self._verify(channel, packed, tokens, cache_salt, variant)
        return StoreReceipt(
            stored_tokens=len(tokens),
            chunks=len(tokens) // self.chunk_size_tokens,
            verified=verify,
            seconds=time.monotonic() - started,
        )

    def delete(self, token_ids: Sequence[int], cache_salt: str = "", variant: str = "") -> int:
        """Delete the KV of every whole chunk of `token_ids`; return how many objects there were.

        Raises:
            EngineError: when the server refuses.
        """
        return self._channel("kv").delete(self._whole_chunks(token_ids), cache_salt, variant)

    def retrieve_queries(
        self, token_ids: Sequence[int], cache_salt: str = "", *, wait_seconds: float = 30.0
    ) -> torch.Tensor:
        """Read the rotated queries that vLLM computed for whole chunks of `token_ids`.

        The engine stores them after it has answered, so this waits up to
        `wait_seconds` for the last chunk.

        Returns:
            `[layers, tokens, query_heads, head_size]`, `tokens` the whole chunks.

        Raises:
            EvidenceError: when the engine captures none, or a chunk is missing;
                the message names the first one and the known reasons.
            StoreError: for less than a chunk of tokens.
        """
        tokens = self._whole_chunks(token_ids)
        require_query_ring(self.geometry)
        packed = wait_for_queries(
            self._channel("query"),
            tokens,
            cache_salt,
            chunk_size_tokens=self.chunk_size_tokens,
            wait_seconds=wait_seconds,
        )
        return self.query_layout.unpack(packed)

    def lmcache_client(self) -> tuple[Any, Any]:
        """Return LMCache's own client for KV, as it is registered here, and its transport."""
        return self._channel("kv").client

    def close(self) -> None:
        """Unregister from the server and let the shared memory go."""
        self._channels.clear()
        self._stack.close()

    def __enter__(self) -> KVCacheSDK:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _channel(self, kind: str) -> SDKChannel:
        if kind not in self._channels:
            url, timeout = self._address
            channel = open_channel(
                kind,
                url=url,
                model_name=self.model_name,
                geometry=self.geometry,
                planes=self.layout.planes,
                server=self.server,
                timeout_seconds=timeout,
            )
            self._channels[kind] = self._stack.enter_context(channel)
        return self._channels[kind]

    def _whole_chunks(self, token_ids: Sequence[int]) -> list[int]:
        chunk = self.chunk_size_tokens
        whole = len(token_ids) // chunk * chunk
        if not whole:
            raise StoreError(
                "LMCache keeps whole chunks, and this prompt has less than one",
                option="prompt tokens",
                value=len(token_ids),
                expected=f"{chunk} or more",
                remedy="use a longer prompt or a smaller LMCache chunk size",
            )
        return list(token_ids)[:whole]

    def _with_planes(self, packed: torch.Tensor) -> torch.Tensor:
        # LMCache leaves the plane axis out of objects that a client stored.
        return packed.unsqueeze(0) if packed.ndim == 3 else packed

    def _verify(
        self,
        channel: SDKChannel,
        packed: torch.Tensor,
        tokens: list[int],
        cache_salt: str,
        variant: str,
    ) -> None:
        read = channel.retrieve(tokens, cache_salt, variant)
        whole = None if read is None else self._with_planes(read)
        as_bytes = packed.contiguous().view(torch.uint8)
        if whole is None or not torch.equal(whole.view(torch.uint8), as_bytes):
            channel.delete(tokens, cache_salt, variant)
            raise StoreError(
                "KV read back after a store is not the KV that was stored; it was deleted",
                value="nothing came back" if whole is None else f"{list(whole.shape)}",
                expected=f"{list(packed.shape)}, equal in every byte",
                remedy="keep GPUs out of this process, and other clients off the server",
            )
