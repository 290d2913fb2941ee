# SPDX-License-Identifier: Apache-2.0
"""LMCache's message queue and shared memory, one channel for KV and one for queries.

A channel reads a prefix, stores chunks (all or none) and deletes them. A store
reserves its keys on the server before the bytes are written, and the server
publishes whatever they hold as soon as the reservation ends, in any way: commit,
unregistering, even its time limit. So a failed store is undone in this order:
delete the reserved objects over HTTP, then commit, which finds them gone.

Made by kvseal.engines.sdk_connect, called by kvseal.engines.sdk alone.
"""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.errors import KvsealError, StoreError
from kvseal.identity.variant import decorate

LOOKUP_POLL_SECONDS = 0.002


class SDKChannel:
    """One registered context of LMCache's SDK."""

    def __init__(self, context: Any, transfer: Any, server: LMCacheHTTP, timeout: float) -> None:
        """Take LMCache's SDK context and its registered shared-memory transport."""
        self._context = context
        self._transfer = transfer
        self._server = server
        self._timeout = timeout
        self._settings = server.config()["mp"]
        self._chunk = int(self._settings["chunk_size"])

    @property
    def client(self) -> tuple[Any, Any]:
        """LMCache's context and transport."""
        return self._context, self._transfer

    def retrieve(
        self, tokens: list[int], cache_salt: str, variant: str = ""
    ) -> torch.Tensor | None:
        """Read the longest cached prefix of whole chunks; None when there is none.

        Returns:
            A copy, `[planes, layers, tokens, width]` or the same without `planes`.

        Raises:
            StoreError: when the server does not answer in time, or finds chunks
                that it then does not hand over.
        """
        request = f"kvseal-retrieve-{uuid.uuid4().hex}"
        try:
            found = self._lookup(tokens, cache_salt, request, variant)
            if not found:
                return None
            key = self._key(tokens[:found], cache_salt, request, variant)
            try:
                slots = self._transfer.prepare_retrieve(key, self._context.instance_id)
                if not slots:
                    raise StoreError(
                        "LMCache found chunks and then did not hand them over",
                        value=f"{found} tokens",
                        remedy="see logs/lmcache.log; a cache that is full may have evicted them",
                    )
                return torch.cat(slots, dim=slots[0].ndim - 2)
            finally:
                self._transfer.commit_retrieve(key, self._context.instance_id)
        finally:
            self._context.end_session(request)

    def store(
        self, packed: torch.Tensor, tokens: list[int], cache_salt: str, variant: str = ""
    ) -> None:
        """Write whole chunks `[planes, layers, tokens, width]`; every one must be new.

        Raises:
            StoreError: and then nothing is stored and nothing stays reserved,
                unless the message says otherwise.
        """
        source = packed.detach().cpu()
        request = f"kvseal-store-{uuid.uuid4().hex}"
        key = self._key(tokens, cache_salt, request, variant)
        reserved: list[int] = []
        try:
            slots, reserved = self._reserve(key)
            self._fill(slots, reserved, source)
            if not self._transfer.commit_store(key, self._context.instance_id, []):
                raise StoreError("LMCache did not confirm a store", value=f"{len(tokens)} tokens")
        except BaseException as error:
            slots = []
            self._abandon(key, tokens, cache_salt, reserved, error)
            raise
        finally:
            self._context.end_session(request)

    def delete(self, tokens: list[int], cache_salt: str, variant: str = "") -> int:
        """Delete all chunks of `tokens`, locked or not; return how many there were."""
        key = self._key(tokens, cache_salt, "kvseal-delete", variant)
        keys = self._object_keys(key, tokens)
        return self._server.delete(keys)

    def _lookup(self, tokens: list[int], cache_salt: str, request: str, variant: str) -> int:
        """Ask how many tokens from the start are cached; read-locks those chunks."""
        deadline = time.monotonic() + self._timeout
        with self._named(variant) as named:
            self._context.maybe_submit_lookup_request(request, tokens, cache_salt, **named)
        found = self._context.check_lookup_result(request)
        while found is None and time.monotonic() < deadline:
            time.sleep(LOOKUP_POLL_SECONDS)
            found = self._context.check_lookup_result(request)
        # LMCache's client answers 0, as for a miss, when the server was silent.
        if found is None or time.monotonic() >= deadline:
            raise StoreError(
                f"the LMCache server did not answer a lookup within {self._timeout} s",
                value=f"{len(tokens)} tokens",
                remedy="see whether the server still runs, and logs/lmcache.log",
            )
        return int(found)

    def _reserve(self, key: Any) -> tuple[list[torch.Tensor], list[int]]:
        try:
            reserved = self._transfer.prepare_store(key, self._context.instance_id)
        except TimeoutError as error:
            raise StoreError(
                f"the LMCache server did not answer a reservation within {self._timeout} s",
                remedy="if it still runs, clear its cache: it may hold reserved keys",
            ) from error
        if reserved is None:
            raise StoreError(
                "the LMCache server has no shared memory, so a store can't be checked",
                option="--shm-name and --no-l1-use-lazy",
                remedy="start the server with both",
            )
        slots, indices = reserved
        return slots, list(indices)

    def _fill(
        self, slots: list[torch.Tensor], indices: Sequence[int], source: torch.Tensor
    ) -> None:
        chunks = source.shape[2] // self._chunk
        if len(indices) < chunks:
            raise StoreError(
                f"nothing was stored: {chunks - len(indices)} of {chunks} chunks were already in "
                "the cache, or reserved, and LMCache never overwrites; or the cache is full",
                option="token IDs and cache salt",
                remedy="clear the cache, or store under another cache salt",
            )
        for slot, index in zip(slots, indices, strict=True):
            part = source[:, :, index * self._chunk : (index + 1) * self._chunk]
            if slot.numel() != part.numel() or slot.dtype != part.dtype:
                raise StoreError(
                    "LMCache's slot has another size than the chunk",
                    value=f"slot {list(slot.shape)} {slot.dtype}",
                    expected=f"{list(part.shape)} {part.dtype}",
                )
            slot.copy_(part.reshape(slot.shape))

    def _abandon(
        self,
        key: Any,
        tokens: list[int],
        cache_salt: str,
        reserved: Sequence[int],
        error: BaseException,
    ) -> None:
        """Undo a store that failed, for the chunks that it had reserved itself."""
        if not reserved:
            return
        try:
            keys = self._object_keys(key, tokens)
            self._server.delete([keys[index] for index in reserved])
            self._transfer.commit_store(key, self._context.instance_id, [])
        except (KvsealError, OSError, RuntimeError) as second:
            raise StoreError(
                f"a store failed ({error}) and could not be undone ({second})",
                value=f"{len(tokens)} tokens, salt {cache_salt!r}",
                remedy="clear the LMCache server's cache before anything reads these tokens",
            ) from error

    def _key(self, tokens: list[int], cache_salt: str, request: str, variant: str) -> Any:
        with self._named(variant) as named:
            return self._context._create_key(
                token_ids=tokens,
                start=0,
                end=len(tokens),
                request_id=request,
                cache_salt=cache_salt,
                worker_id=0,
                **named,
            )

    @contextmanager
    def _named(self, variant: str) -> Iterator[dict[str, str]]:
        """Let LMCache's context make keys of `variant`; one channel, one thread.

        A context that kvseal edited takes the variant as an argument, which is
        what comes from here; of any other, the model's name is another one meanwhile.
        """
        if not variant:
            yield {}
        elif "variant" in inspect.signature(self._context._create_key).parameters:
            yield {"variant": variant}
        else:
            plain = self._context._model_name
            self._context._model_name = decorate(plain, variant)
            try:
                yield {}
            finally:
                self._context._model_name = plain

    def _object_keys(self, key: Any, tokens: list[int]) -> list[dict[str, Any]]:
        """The server's object keys of `tokens`, chunk by chunk, in their JSON form."""
        from lmcache.v1.distributed.api import ipc_key_to_object_keys
        from lmcache.v1.multiprocess.token_hasher import TokenHasher

        hasher = TokenHasher(self._chunk, str(self._settings["hash_algorithm"]))
        hashes = [TokenHasher.hash_to_bytes(h) for h in hasher.compute_chunk_hashes(tokens)]
        keys = ipc_key_to_object_keys(key, hashes, [0])[0]
        return [asdict(object_key.to_encoded_object_key()) for object_key in keys]
