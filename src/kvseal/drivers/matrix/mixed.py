# SPDX-License-Identifier: Apache-2.0
"""A plain and a SnapKV vLLM on one LMCache server, asked at the same time.

Each has a client of its own and a seeded list of requests. The plain one asks
for source prompts and for the literal tokens that transforms keep; the other
one stores transformed KV in between, for two tenants, and asks for it by its
exact variant, by that of another query, and for the literal tokens too. Who
gets whose KV then shows in the generated token IDs. Judges nothing.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kvseal.drivers.matrix.artifacts import Topic
from kvseal.engines.completions import Completion, CompletionClient
from kvseal.engines.sdk import KVCacheSDK
from kvseal.engines.sealed import SealedStream
from kvseal.errors import StoreError
from kvseal.process import Progress
from kvseal.records import matrix_builders as builders
from kvseal.records.history import HistoryWriter

TENANTS = ("mixed-a", "mixed-b")


@dataclass(frozen=True)
class Request:
    """One step of an engine's list; kind `store` stores, every other asks."""

    index: int
    kind: str
    topic: Topic
    tenant: str
    required: str


def requests(
    topics: Sequence[Topic], count: int, seed: int, *, sealed: bool
) -> dict[str, list[Request]]:
    """Return the lists of both engines, `count` requests in all, stores not counted.

    A transform is asked for before it was stored as well as after.
    """
    draw = random.Random(seed)  # noqa: S311 - a schedule, no secret
    lists: dict[str, list[Request]] = {"plain": [], "snapkv": []}
    stored: set[tuple[str, str]] = set()
    for index in range(count):
        topic, tenant = draw.choice(topics), draw.choice(TENANTS)
        place = (topic.made.name, tenant)
        if index % 2 == 0:
            kind = draw.choice(("source", "literal"))
            lists["plain"].append(Request(index, kind, topic, tenant, "any"))
            continue
        kind = draw.choice(("exact", "exact", "exact", "other", "literal"))
        if kind == "exact" and place not in stored and draw.random() < 0.7:
            lists["snapkv"].append(Request(index, "store", topic, tenant, "any"))
            stored.add(place)
        there = kind == "exact" and place in stored
        required = "hit" if there else "any" if kind == "literal" else "miss"
        lists["snapkv"].append(
            Request(index, kind, topic, tenant, required if sealed or there else "any")
        )
    return lists


class SnapkvClient:
    """Who makes transformed KV: a sealed stream a tenant, or without identity the bare SDK."""

    def __init__(
        self, sdk: KVCacheSDK, client: CompletionClient, new_tokens: int, *, sealed: bool
    ) -> None:
        self._sdk = sdk
        self._client = client
        self._new_tokens = new_tokens
        self._streams = (
            {tenant: SealedStream(sdk, client, None, tenant) for tenant in TENANTS}
            if sealed
            else {}
        )

    def store(self, topic: Topic, tenant: str) -> None:
        """Store a topic's transform."""
        if self._streams:
            self._streams[tenant].store(topic.artifact, topic.source)
            return
        # Where ordinary KV of the same tokens is in the way, the store changes nothing.
        with suppress(StoreError):
            self._sdk.store_kv(topic.made.keys, topic.made.values, topic.made.token_ids, tenant)

    def ask(self, request: Request) -> tuple[Completion, str]:
        """Return the answer, and the variant that was named."""
        topic, tenant = request.topic, request.tenant
        if request.kind == "exact" and self._streams:
            completion = self._streams[tenant].complete(
                topic.artifact, topic.literal, max_tokens=self._new_tokens, ignore_eos=True
            )
            return completion, topic.artifact.variant
        variant = topic.other_variant if request.kind == "other" and self._streams else ""
        completion = self._client.complete(
            topic.literal,
            max_tokens=self._new_tokens,
            cache_salt=tenant,
            ignore_eos=True,
            variant=variant,
        )
        return completion, variant


class PlainClient:
    """Who knows nothing of transforms."""

    def __init__(self, client: CompletionClient, new_tokens: int) -> None:
        self._client = client
        self._new_tokens = new_tokens

    def ask(self, request: Request) -> tuple[Completion, str]:
        """Return the answer to an ordinary request."""
        completion = self._client.complete(
            _prompt(request),
            max_tokens=self._new_tokens,
            cache_salt=request.tenant,
            ignore_eos=True,
        )
        return completion, ""


def run_mixed(
    snapkv: SnapkvClient,
    plain: PlainClient,
    lists: Mapping[str, Sequence[Request]],
    history: HistoryWriter,
) -> None:
    """Work through both lists at once."""
    total = sum(request.kind != "store" for part in lists.values() for request in part)
    number = itertools.count(1)
    stop = threading.Event()

    def work(engine: str, client: SnapkvClient | PlainClient, progress: Progress) -> None:
        try:
            for request in lists[engine]:
                if stop.is_set():
                    return
                if isinstance(client, SnapkvClient) and request.kind == "store":
                    client.store(request.topic, request.tenant)
                    continue
                progress.update(f"request {next(number)} of {total}")
                history.append(_event(engine, request, *client.ask(request)))
        except BaseException:
            stop.set()  # the other list would wait for engines that may be gone
            raise

    clients: dict[str, SnapkvClient | PlainClient] = {"snapkv": snapkv, "plain": plain}
    with (
        Progress("plain and SnapKV at the same time") as progress,
        ThreadPoolExecutor(len(clients)) as pool,
    ):
        for future in [pool.submit(work, name, clients[name], progress) for name in lists]:
            future.result()


def _prompt(request: Request) -> list[int]:
    topic = request.topic
    return [*topic.source, *topic.tail] if request.kind == "source" else topic.literal


def _event(
    engine: str, request: Request, completion: Completion, variant: str
) -> dict[str, object]:
    return builders.mixed(
        index=request.index,
        engine=engine,
        kind=request.kind,
        artifact=request.topic.made.name,
        required=request.required,
        prompt=_prompt(request),
        artifact_tokens=len(request.topic.made.token_ids),
        variant=variant,
        cache_salt=request.tenant,
        output_token_ids=completion.token_ids,
        hit_tokens_vllm=completion.hit_tokens,
    )
