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
from dataclasses import dataclass

from kvseal.drivers.matrix.artifacts import Topic
from kvseal.engines.completions import CompletionClient
from kvseal.engines.sdk import KVCacheSDK
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


def run_mixed(
    clients: Mapping[str, CompletionClient],
    sdk: KVCacheSDK,
    lists: Mapping[str, Sequence[Request]],
    history: HistoryWriter,
    *,
    new_tokens: int,
    sealed: bool,
) -> None:
    """Work through both lists at once."""
    total = sum(request.kind != "store" for part in lists.values() for request in part)
    number = itertools.count(1)
    stop = threading.Event()

    def work(engine: str, progress: Progress) -> None:
        try:
            for request in lists[engine]:
                if stop.is_set():
                    return
                if request.kind == "store":
                    _store(sdk, request, sealed=sealed)
                    continue
                progress.update(f"request {next(number)} of {total}")
                history.append(_ask(clients[engine], engine, request, new_tokens, sealed=sealed))
        except BaseException:
            stop.set()  # the other list would wait for engines that may be gone
            raise

    with (
        Progress("plain and SnapKV at the same time") as progress,
        ThreadPoolExecutor(len(lists)) as pool,
    ):
        for future in [pool.submit(work, engine, progress) for engine in lists]:
            future.result()


def _store(sdk: KVCacheSDK, request: Request, *, sealed: bool) -> None:
    made = request.topic.made
    variant = request.topic.variant if sealed else ""
    try:
        sdk.store_kv(made.keys, made.values, made.token_ids, request.tenant, variant=variant)
    except StoreError:
        # Without an identity, ordinary KV of the same tokens may be in the way.
        if sealed:
            raise


def _ask(
    client: CompletionClient, engine: str, request: Request, new_tokens: int, *, sealed: bool
) -> dict[str, object]:
    topic = request.topic
    prompt = list(topic.source) + list(topic.tail) if request.kind == "source" else topic.literal
    variant = {"exact": topic.variant, "other": topic.other_variant}.get(request.kind, "")
    variant = variant if sealed else ""
    completion = client.complete(
        prompt,
        max_tokens=new_tokens,
        cache_salt=request.tenant,
        ignore_eos=True,
        variant=variant,
    )
    return builders.mixed(
        index=request.index,
        engine=engine,
        kind=request.kind,
        artifact=topic.made.name,
        required=request.required,
        prompt=prompt,
        artifact_tokens=len(topic.made.token_ids),
        variant=variant,
        cache_salt=request.tenant,
        output_token_ids=completion.token_ids,
        hit_tokens_vllm=completion.hit_tokens,
    )
