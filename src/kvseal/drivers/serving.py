# SPDX-License-Identifier: Apache-2.0
"""Both engines of a run, and what every driver does with them.

One LMCache server and one vLLM on it, started and stopped together; a prompt
prefilled, its KV and queries taken out, compacted and stored back. Shared by
the drivers beside this file; writes no history and decides nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.compaction.compacted import Compacted
from kvseal.compaction.rope_config import rope_from_config
from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.snapkv import SnapKV
from kvseal.engines.completions import Completion, CompletionClient
from kvseal.engines.geometry import ModelShape
from kvseal.engines.lmcache import CacheServer, started_lmcache
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.sdk import KVCacheSDK
from kvseal.engines.vllm import started_vllm
from kvseal.errors import EngineError
from kvseal.models.directory import ModelDirectory
from kvseal.process import segment_name
from kvseal.spec.runspec import RunSpec
from kvseal.spec.workload_rules import cached_prefix_tokens

STORE_POLL_SECONDS = 0.05
STORE_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class CompactedPrompt:
    """A prompt whose KV was compacted and stored: what to send now, and what it took.

    `token_ids` are the retained tokens followed by the tail that was never cached.
    """

    compacted: Compacted
    token_ids: list[int]
    tail_token_ids: list[int]
    stored_tokens: int
    retrieve_seconds: float
    transform_seconds: float
    store_seconds: float


@dataclass(frozen=True)
class Measured:
    """A completion, and the tokens the LMCache server says it loaded into vLLM for it."""

    completion: Completion
    hit_tokens_server: int


@dataclass(frozen=True)
class Serving:
    """Two running engines and the SDK between them."""

    spec: RunSpec
    model: ModelDirectory
    client: CompletionClient
    cache: LMCacheHTTP
    sdk: KVCacheSDK
    rope: RopeParameters

    def describe(self) -> dict[str, Mapping[str, Any]]:
        """What each engine is and reported of itself, for the history."""
        return {
            "vllm": {"url": self.client.base_url, "layout": self.sdk.layout.name},
            "lmcache": {"url": self.cache.base_url, "config": self.cache.config()},
        }

    def ask(
        self, token_ids: Sequence[int], *, max_tokens: int | None = None, cache_salt: str = ""
    ) -> Measured:
        """Send one prompt and count what the server loaded for it."""
        before = self.cache.hit_counters(str(self.model.path), cache_salt)
        completion = self.client.complete(
            list(token_ids),
            max_tokens=max_tokens or self.spec.workload.new_tokens,
            cache_salt=cache_salt,
            seed=self.spec.workload.seed,
        )
        after = self.cache.hit_counters(str(self.model.path), cache_salt)
        return Measured(completion, after.since(before).loaded)

    def prefill(self, token_ids: Sequence[int], *, cache_salt: str = "") -> int:
        """Compute a prompt's KV and wait until LMCache has all its whole chunks.

        Returns the number of tokens that LMCache now holds of it.

        Raises:
            EngineError: when they have not all arrived after a minute.
        """
        kinds = 2 if self.sdk.geometry.captures_queries else 1
        return prefill(self.client, self.cache, token_ids, kinds=kinds, cache_salt=cache_salt)

    def compact(
        self, token_ids: Sequence[int], *, source_salt: str, store_salt: str
    ) -> CompactedPrompt:
        """Take a prefilled prompt's KV and queries out, apply SnapKV, store the result.

        Raises:
            StoreError, EvidenceError, TransformError: see KVCacheSDK and SnapKV.
        """
        snapkv = SnapKV(
            self.spec.snapkv.drop_percent,
            self.spec.snapkv.window_tokens,
            self.spec.snapkv.kernel_tokens,
        )
        chunk = self.spec.lmcache.chunk_size_tokens
        source = cached_prefix_tokens(len(token_ids), chunk)
        source_ids = list(token_ids[:source])
        tail = list(token_ids[source:])
        started = time.monotonic()
        found = self.sdk.retrieve_kv(source_ids, source_salt)
        if found is None or found[0].shape[1] != source:
            raise EngineError(
                "LMCache gave back less KV than it reported to hold",
                value=0 if found is None else found[0].shape[1],
                expected=f"{source} tokens",
            )
        queries = self.sdk.retrieve_queries(source_ids, source_salt)
        retrieved = time.monotonic()
        compacted = snapkv.apply(queries, *found, source_ids, self.rope, chunk_tokens=chunk)
        transformed = time.monotonic()
        receipt = self.sdk.store_kv(
            compacted.keys, compacted.values, compacted.token_ids, store_salt
        )
        return CompactedPrompt(
            compacted=compacted,
            token_ids=[*compacted.token_ids, *tail],
            tail_token_ids=tail,
            stored_tokens=receipt.stored_tokens,
            retrieve_seconds=retrieved - started,
            transform_seconds=transformed - retrieved,
            store_seconds=receipt.seconds,
        )


def prefill(
    client: CompletionClient,
    cache: LMCacheHTTP,
    token_ids: Sequence[int],
    *,
    kinds: int,
    cache_salt: str,
) -> int:
    """Compute a prompt's KV and wait until LMCache has all its whole chunks.

    `kinds` is how many objects one chunk is: 2 where queries are captured too.
    Returns the number of tokens that LMCache now holds of it.

    Raises:
        EngineError: when they have not all arrived after a minute.
    """
    chunk = cache.chunk_size_tokens()
    expected = cached_prefix_tokens(len(token_ids), chunk)
    objects = kinds * expected // chunk
    # What the answer before this one still has to store must not be counted for it.
    before = cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS).objects
    client.complete(list(token_ids), max_tokens=1, cache_salt=cache_salt)
    deadline = time.monotonic() + STORE_TIMEOUT_SECONDS
    while cache.object_count() - before < objects:
        if time.monotonic() > deadline:
            raise EngineError(
                "LMCache did not receive the KV of a prefilled prompt",
                value=f"{cache.object_count() - before} of {objects} objects",
                remedy="read the engines' logs in the run folder",
            )
        time.sleep(STORE_POLL_SECONDS)
    cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS)
    return expected


@contextmanager
def serving(spec: RunSpec, model: ModelDirectory, *, logs: Path, run_id: str) -> Iterator[Serving]:
    """Run LMCache and vLLM for a `with` block; both are gone when it ends.

    Raises:
        EngineError, LayoutError, PrerequisiteError: when they can't be used.
    """
    config = model.config()
    rope = rope_from_config(config, max_model_len_tokens=spec.vllm.max_model_len_tokens)
    python = sys.executable
    segment = segment_name(run_id)
    with (
        started_lmcache(
            CacheServer.of(spec),
            python=python,
            log=logs / "lmcache.log",
            segment=segment,
            run_id=run_id,
        ) as lmcache,
        started_vllm(
            spec,
            python=python,
            model=model.path,
            log=logs / "vllm.log",
            lmcache=lmcache.endpoint,
            run_id=run_id,
            seed=spec.workload.seed,
        ) as vllm,
    ):
        # vLLM spends its first half minute on imports and weights, so both
        # start at once; it asks for the cache server only after that.
        lmcache.wait_ready()
        vllm.wait_ready()
        with KVCacheSDK(
            url=lmcache.endpoint.url,
            http_url=lmcache.endpoint.http_url,
            model_name=str(model.path),
            shape=ModelShape.from_config(config),
            device=spec.device,
        ) as sdk:
            cache = LMCacheHTTP(lmcache.endpoint.http_url)

            def watch() -> None:
                lmcache.process.check()
                vllm.process.check()

            yield Serving(spec, model, vllm.endpoint.client(watch), cache, sdk, rope)
