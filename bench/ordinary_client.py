# SPDX-License-Identifier: Apache-2.0
"""A client of one LMCache server: times ordinary calls, and says what their keys are.

Started by ordinary_cost.py in the environment that is measured, as
`ordinary_client.py URL HTTP_URL LAYERS HEADS HEAD_SIZE`; reads a JSON request a
line and answers each with one. The calls are LMCache's own client, on its
message queue and shared memory; only its registration is kvseal's.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch

MODEL = "bench/ordinary"
BLOCK_TOKENS = 32


def main() -> int:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; answers stay apart
    from kvseal.engines.lmcache_http import LMCacheHTTP
    from kvseal.engines.sdk_connect import open_channel
    from kvseal.layouts import KVGeometry

    url, http_url, *sizes = sys.argv[1:]
    layers, heads, head_size = map(int, sizes)
    kv = KVGeometry(layers, heads, head_size, BLOCK_TOKENS, torch.float32)
    geometry: Any = SimpleNamespace(kv=kv)
    server = LMCacheHTTP(http_url)
    with open_channel(
        "kv",
        url=url,
        model_name=MODEL,
        geometry=geometry,
        planes=2,
        server=server,
        timeout_seconds=60.0,
    ) as channel:
        gc.disable()  # a collection at its own time would be counted to one side
        client = Client(*channel.client, server.chunk_size_tokens(), kv)
        for line in sys.stdin:
            request = json.loads(line)
            do = {
                "take": lambda given: client.take(given["token_ids"], given["seed"]),
                "pass": lambda given: client.once(given["salt"]),
                "keys": lambda given: client.keys(given["salt"]),
                "versions": lambda _: {name: version(name) for name in ("lmcache", "torch")},
            }
            answers.write(json.dumps(do[request["do"]](request)) + "\n")
            answers.flush()
    return 0


class Client:
    """LMCache's client, registered."""

    def __init__(self, context: Any, transfer: Any, chunk: int, kv: Any) -> None:
        self._context = context
        self._transfer = transfer
        self._chunk = chunk
        self._kv = kv
        self._tokens: list[int] = []
        self._data: Any = None

    def take(self, tokens: list[int], seed: int) -> None:
        """Keep what the next passes are about: token IDs, and KV of them by its seed."""
        draw = torch.Generator().manual_seed(seed)
        width = self._kv.kv_heads * self._kv.head_size
        self._tokens = tokens
        self._data = torch.randn(2, self._kv.layers, len(tokens), width, generator=draw)

    def once(self, salt: str) -> dict[str, float]:
        """Look up, store, look up and retrieve; return the seconds of each, and of this CPU.

        Raises:
            RuntimeError: something came out that was not to be.
        """
        clock, tokens = time.perf_counter, self._tokens
        chunks = self._data.split(self._chunk, dim=2)
        used = time.process_time()
        start = clock()
        missed = self._found(salt, "miss")
        self._context.end_session("miss")
        looked_up = clock()
        reserved = self._store(salt, chunks)
        stored = clock()
        found = self._found(salt, "hit")
        looked_up_again = clock()
        back = self._retrieve(salt, "hit")
        end = clock()
        used = time.process_time() - used
        if (missed, reserved, found) != (0, len(chunks), len(tokens)):
            raise RuntimeError(f"missed {missed}, reserved {reserved}, found {found}")
        if not torch.equal(back, self._data):
            raise RuntimeError("what came back is not what was stored")
        return {
            "lookup that misses": looked_up - start,
            "store": stored - looked_up,
            "lookup that finds": looked_up_again - stored,
            "retrieve": end - looked_up_again,
            "client CPU": used,
        }

    def keys(self, salt: str) -> dict[str, Any]:
        """Return the key as it is sent (a digest), as the server keeps it, and its file names."""
        import msgspec
        from lmcache.v1.distributed.api import ipc_key_to_object_keys
        from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import _object_key_to_filename
        from lmcache.v1.multiprocess.token_hasher import TokenHasher

        key = self._key(salt, "keys")
        hasher = TokenHasher(self._chunk, "blake3")
        hashes = [TokenHasher.hash_to_bytes(h) for h in hasher.compute_chunk_hashes(self._tokens)]
        kept = ipc_key_to_object_keys(key, hashes, [0])[0]
        return {
            "sent": hashlib.sha256(msgspec.msgpack.encode(key)).hexdigest(),
            "kept": [asdict(one.to_encoded_object_key()) for one in kept],
            "file names": [_object_key_to_filename(one) for one in kept],
        }

    def _key(self, salt: str, request: str) -> Any:
        return self._context._create_key(
            token_ids=self._tokens,
            start=0,
            end=len(self._tokens),
            request_id=request,
            cache_salt=salt,
            worker_id=0,
        )

    def _found(self, salt: str, request: str) -> int:
        """Return how many tokens a lookup finds."""
        self._context.maybe_submit_lookup_request(request, self._tokens, salt)
        found = self._context.check_lookup_result(request)
        while found is None:
            found = self._context.check_lookup_result(request)
        return int(found)

    def _store(self, salt: str, chunks: Sequence[Any]) -> int:
        """Store every chunk; return how many places the server gave."""
        key, instance = self._key(salt, "store"), self._context.instance_id
        slots, indices = self._transfer.prepare_store(key, instance)
        for slot, index in zip(slots, indices, strict=True):
            slot.copy_(chunks[index])
        if not self._transfer.commit_store(key, instance, []):
            raise RuntimeError("a store was not confirmed")
        self._context.end_session("store")
        return len(indices)

    def _retrieve(self, salt: str, request: str) -> Any:
        """Return what the lookup found."""
        key, instance = self._key(salt, request), self._context.instance_id
        slots = self._transfer.prepare_retrieve(key, instance)
        back = torch.cat(slots, dim=2)
        self._transfer.commit_retrieve(key, instance)
        self._context.end_session(request)
        return back


if __name__ == "__main__":
    sys.exit(main())
