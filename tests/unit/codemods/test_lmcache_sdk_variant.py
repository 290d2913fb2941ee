# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_key_variant,
    lmcache_sdk_variant,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
CODEMOD = lmcache_sdk_variant.CODEMOD

CHECKS = """
import json
from types import SimpleNamespace
import torch
from lmcache.sdk import batch, context, request
from lmcache.sdk.cache_kind import LMCacheSDKCacheKind as Kind
from lmcache.sdk.wrapper.contiguous import ContiguousTransferWrapper

CHUNK, LOCAL, QUERY = 4, "r1" + "a" * 32, "q1" + "b" * 32

def kv_of(tokens):
    return torch.zeros(2, 1, tokens, 8)

class Transfer:
    # What the server says to a store: chunks it made room for, None for pickle transport.
    slots, answer = None, True

    def __init__(self):
        self.keys = []

    def prepare_store(self, key, instance_id):
        self.keys.append(key)
        if self.slots is None:
            return None
        return [kv_of(CHUNK) for _ in self.slots], list(self.slots)

    def commit_store(self, key, instance_id, chunks):
        return self.answer

    def prepare_retrieve(self, key, instance_id):
        self.keys.append(key)
        return [kv_of(CHUNK)] * ((key.end - key.start) // CHUNK)

    def commit_retrieve(self, key, instance_id):
        pass

def connected(kind=Kind.KV):
    made = context.LMCacheSDKContext.__new__(context.LMCacheSDKContext)
    made._kind, made._model_name = kind, kind.server_model_name("m")
    made._chunk_size, made._world_size, made._num_kv_readers = CHUNK, 1, 1
    made._mq_timeout, made._http_url, made.instance_id = 1.0, "http://none", 1
    made._pending_lookups, made._finished_lookups = set(), {}
    made._transfer_ctx = ContiguousTransferWrapper(Transfer(), CHUNK)
    made.looked_up, made.ended = [], []
    made.end_session = lambda request_id: None
    done = SimpleNamespace(result=lambda timeout: None)

    def lookup(key, *_):
        made.looked_up.append(key)
        return done

    # 0.5.4 submits by request type, the others call a method.
    submit = lambda kind, payload, answer: lookup(payload[0])
    made._mq_client = SimpleNamespace(submit_request=submit)
    made._req_client = SimpleNamespace(lookup=lookup)
    made.check_lookup_result = lambda request_id: (made.looked_up[-1].end // CHUNK) * CHUNK
    made.end_lease = made.ended.append
    return made

def outcome(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def check_names():
    out = {}
    for kind in Kind:
        ctx = connected(kind)
        for variant in ("", QUERY):
            ctx.retrieve(range(8), variant=variant)
            ctx.store(kv_of(8), list(range(8)), variant=variant)
            keys = [*ctx.looked_up[-1:], *ctx._transfer_ctx._context.keys[-2:]]
            out[f"{kind.value} {variant}"] = sorted({key.model_name for key in keys})
            out[f"{kind.value} {variant} keys"] = len(keys)
    out["malformed"] = outcome(connected().retrieve, range(8), variant="q1short")
    out["forged"] = outcome(context.LMCacheSDKContext, "", "", "m##tv1-" + QUERY)
    return out

def check_strict():
    out = {}
    cases = {
        "pickle, all": (None, True), "pickle, less": (None, False), "shm, all": ([0, 1], True),
        "shm, one": ([1], True), "shm, none": ([], True), "shm, not committed": ([0, 1], False),
    }
    for name, (slots, answer) in cases.items():
        ctx = connected()
        ctx._transfer_ctx._context.slots, ctx._transfer_ctx._context.answer = slots, answer
        out[name] = [
            outcome(ctx.store, kv_of(8), list(range(8)), variant=v) for v in ("", QUERY)
        ]
    ctx = connected()
    out["part of a chunk"] = [
        outcome(ctx.store, kv_of(9), list(range(9)), variant=v) for v in ("", QUERY)
    ]
    out["no chunk"] = outcome(ctx.store, kv_of(3), [1, 2, 3], variant=QUERY)
    out["keys after refusals"] = len(ctx._transfer_ctx._context.keys)
    return out

def check_server():
    from lmcache.v1.multiprocess.modules.server_transfer import PickleTransferStrategy
    import pickle

    class Manager:
        def __init__(self, free):
            self.free = free

        def reserve_write(self, keys, *_):
            return {k: SimpleNamespace(tensor=kv_of(CHUNK)) for k in keys if k in self.free}

        def finish_write(self, keys):
            pass

        def prepare_write_completion(self, written):
            return []

        finish_write_by_owner = finish_write

    def stored(request_id, free):
        strategy = PickleTransferStrategy(Manager(free))
        return strategy.commit_store(
            SimpleNamespace(request_id=request_id), 1, pickle.dumps([kv_of(CHUNK)] * 2),
            SimpleNamespace(layout_desc=None), lambda key: ["a", "b"],
        )

    return {
        name: [stored(request_id, free) for free in ("ab", "a", "")]
        for name, request_id in (("sdk", "store-1"), ("engine", "cmpl-1"))
    }

class Engine:
    def __init__(self):
        self.calls = []

    def __call__(self, tokens, sampling_params, cache_salt, **named):
        self.calls.append([list(tokens), named])
        return [request.TokenEvent(99)]

def check_stream():
    out, engine, ctx = {}, Engine(), connected()
    stream = request.create_request([ctx], engine, range(10))
    stream.generate({"max_tokens": 1})
    out["ordinary"] = engine.calls[-1]
    stream.modify_kv(lambda tensors, tokens: (kv_of(4), tokens[:4]), variant=QUERY)
    out["variant"] = [stream.variant == QUERY, list(stream.tokens), stream.suffix_tokens]
    stream.generate({"max_tokens": 1}, [7])
    out["generated"] = engine.calls[-1]
    stream.modify_kv(lambda tensors, tokens: (kv_of(4), tokens[:4], LOCAL))
    out["read under"] = ctx.looked_up[-1].model_name
    out["named by the modifier"] = stream.variant
    stream.modify_kv(lambda tensors, tokens: (kv_of(4), tokens[:4]))
    first = stream.variant
    stream.modify_kv(lambda tensors, tokens: (kv_of(4), tokens[:4]))
    out["legacy"] = [first[:2], len(first), first != stream.variant, first != LOCAL]
    with stream:
        pass
    stream.close()
    out["ended"] = [len(ctx.ended), ctx.ended[0] == LOCAL, QUERY in ctx.ended]
    out["closed"] = [
        outcome(stream.generate, {}), outcome(stream.retrieve, Kind.KV),
        outcome(stream.update, Kind.KV, kv_of(4), [1, 2, 3, 4]),
    ]
    return out

def check_legacy_tail():
    engine, ctx = Engine(), connected()
    stream = request.create_request([ctx], engine, range(8))
    stream.modify_kv(lambda tensors, tokens: (kv_of(6), tokens[:6]))
    key = ctx._transfer_ctx._context.keys[-1]
    stream.generate({"max_tokens": 1})
    named = engine.calls[-1][1]["kv_transfer_params"]
    return [key.end, engine.calls[-1][0], named["lmcache.variant_tokens"]]

def check_failed_store():
    engine, ctx = Engine(), connected()
    stream = request.create_request([ctx], engine, range(10))
    ctx._transfer_ctx._context.answer = False
    failed = outcome(stream.modify_kv, lambda t, tokens: (kv_of(4), tokens[:4]), variant=LOCAL)
    stream.generate({"max_tokens": 1})
    stream.close()
    return [failed, engine.calls[-1], ctx.ended]

def check_consumer():
    engine = Engine()
    named = request.create_request([connected()], engine, range(8), variant=QUERY, variant_tokens=4)
    named.generate({"max_tokens": 1})
    three = lambda tokens, sampling_params, cache_salt: []
    return [
        engine.calls[-1][1],
        outcome(request.create_request, [connected()], three, range(8), variant=QUERY),
        outcome(request.create_request, [connected()], engine, range(8), variant_tokens=4),
        outcome(request.create_request, [connected()], engine, range(8), variant="x"),
    ]

def check_batch():
    streams, made = [], batch.LMCacheBatchedStream()
    for _ in range(2):
        streams.append(request.create_request([connected()], Engine(), range(8)))
        made.add(streams[-1])
    variants = {streams[0].request_stream_id: QUERY}
    made.modify_request_streams(lambda t, tokens: (kv_of(4), tokens[:4]), variants=variants)
    made.close()
    ended = [ctx.ended for s in streams for ctx in s._contexts.values()]
    return [streams[0].variant, streams[1].variant[:2], [len(one) for one in ended]]

def check_lease():
    import requests
    seen = []

    def delete(url, timeout):
        seen.append(url)
        answer = requests.Response()
        answer.status_code = 200 if len(seen) == 1 else 404
        answer._content = b'{"deleted": 3}'
        return answer

    requests.delete = delete
    ctx = connected()
    del ctx.end_lease
    return [ctx.end_lease(LOCAL), outcome(ctx.end_lease, LOCAL), seen[0]]

names = [name for name in list(globals()) if name.startswith("check_")]
print(json.dumps({name[6:]: globals()[name]() for name in names}))
"""


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched SDK does, by the name of the check; one process, for its start is slow."""
    lmcache.apply([IDENTITY, KEYS, CODEMOD])
    return lmcache.run(CHECKS)


R, Q = "r1" + "a" * 32, "q1" + "b" * 32


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY, KEYS)


def test_every_key_of_a_call_carries_its_variant(found: Any) -> None:
    names = found["names"]
    assert names["kv "] == ["m"]
    assert names["query "] == ["m##query"]
    assert names[f"kv {Q}"] == [f"m##tv1-{Q}"]
    assert names[f"query {Q}"] == [f"m##query##tv1-{Q}"]
    assert {names[name] for name in names if name.endswith("keys")} == {3}
    assert "malformed variant" in names["malformed"]
    assert "reserved" in names["forged"]


@pytest.mark.parametrize(
    "case", ["pickle, less", "shm, one", "shm, none", "shm, not committed", "part of a chunk"]
)
def test_a_short_store_of_a_variant_is_an_error_and_never_true(found: Any, case: str) -> None:
    plain, named = found["strict"][case]
    assert plain is (case == "part of a chunk")
    assert named.startswith("LMCacheSDKError: store of variant")


def test_a_whole_store_is_true(found: Any) -> None:
    strict = found["strict"]
    assert strict["pickle, all"] == strict["shm, all"] == [True, True]
    assert strict["no chunk"].startswith("LMCacheSDKError")
    assert strict["keys after refusals"] == 1


def test_the_server_counts_what_an_sdk_store_did_not_write(found: Any) -> None:
    assert found["server"] == {"sdk": [True, False, False], "engine": [True, True, True]}


def test_a_stream_names_its_variant_to_engine_and_server(found: Any) -> None:
    stream = found["stream"]
    assert stream["ordinary"] == [list(range(10)), {}]
    assert stream["variant"] == [True, [0, 1, 2, 3], [8, 9, 99]]
    params = {"lmcache.variant": Q, "lmcache.variant_tokens": 4}
    assert stream["generated"] == [[0, 1, 2, 3, 8, 9, 99, 7], {"kv_transfer_params": params}]
    assert stream["read under"] == f"m##tv1-{Q}"
    assert stream["named by the modifier"] == R


def test_edited_kv_without_a_name_is_sealed_request_local(found: Any) -> None:
    assert found["stream"]["legacy"] == ["r1", 34, True, True]
    assert found["legacy_tail"] == [4, [0, 1, 2, 3, 4, 5], 4]


def test_close_ends_every_request_local_lease_once(found: Any) -> None:
    assert found["stream"]["ended"] == [3, True, False]
    assert all("is closed" in text for text in found["stream"]["closed"])


def test_a_failed_store_leaves_the_stream_as_it_was(found: Any) -> None:
    failed, call, ended = found["failed_store"]
    assert failed.startswith("LMCacheSDKError: store of variant")
    assert call == [list(range(10)), {}]
    assert ended == [R]


def test_a_consumer_names_a_variant_or_is_refused(found: Any) -> None:
    named, three, tokens, malformed = found["consumer"]
    assert named == {"kv_transfer_params": {"lmcache.variant": Q, "lmcache.variant_tokens": 4}}
    assert "must take the keyword kv_transfer_params" in three
    assert "variant_tokens without a variant" in tokens
    assert "malformed variant" in malformed


def test_a_batch_gives_each_stream_its_variant(found: Any) -> None:
    assert found["batch"] == [Q, "r1", [0, 1]]


def test_ending_a_lease_needs_the_servers_answer(found: Any) -> None:
    deleted, failed, url = found["lease"]
    assert deleted == 3
    assert failed.startswith("LMCacheSDKError: failed to end the lease")
    assert url == f"http://none/transform/leases/{R}"
