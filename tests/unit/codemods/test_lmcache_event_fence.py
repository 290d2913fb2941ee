# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_event_fence,
    lmcache_key_variant,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
CODEMOD = lmcache_event_fence.CODEMOD

CHECKS = """
import importlib, inspect, json, threading
from types import SimpleNamespace
from lmcache.v1.distributed.api import L1BackendType, ObjectKey
from lmcache.v1.distributed.internal_api import L1ObjectMeta
from lmcache.v1.mp_observability.event import Event, EventType
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey
from lmcache.v1.multiprocess.modules import lmcache_driven_transfer as transfer

VARIANT = "m##tv1-q1" + "b" * 32

def ipc(model_name, worker_id=0):
    return IPCCacheServerKey(
        model_name=model_name, world_size=1, worker_id=worker_id, token_ids=tuple(range(8)),
        start=0, end=8, request_id="x",
    )

def entries(model_name):
    return [ObjectKey(bytes([i] * 32), model_name, 0x01000100) for i in range(2)]

def loaded(name):
    try:
        return importlib.import_module("lmcache.v1.multiprocess.modules." + name)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("lmcache"):
            return None
        raise

def check_bindings():
    seen = []
    module = transfer.LMCacheDrivenTransferModule.__new__(transfer.LMCacheDrivenTransferModule)
    module._ctx = SimpleNamespace(
        chunk_size=4, event_bus=SimpleNamespace(publish=lambda event: seen.append(event))
    )
    found = {}
    for name in ("m", VARIANT):
        seen.clear()
        module._publish_token_bindings(ipc(name), entries(name))
        found[name] = len(seen)
    return found

def check_stamps():
    from lmcache.v1.mp_coordinator.cache_events import CacheEventSink, CacheEventSubscriber

    class Sink(CacheEventSink):
        seen = {}

        def publish(self, batches):
            for batch in batches:
                for entry in batch.entries:
                    self.seen.setdefault(entry.key.model_name, []).append(list(entry.token_ids))

    events = CacheEventSubscriber(Sink(), "i", 1)
    handlers = events.get_subscriptions()
    bound = {
        "chunk_hashes": [bytes([0] * 32), bytes([1] * 32)],
        "token_chunks": [[0, 1, 2, 3], [4, 5, 6, 7]], "token_offsets": [0, 4],
        "parent_hashes": [None, bytes([0] * 32)],
    }
    handlers[EventType.MP_TOKENS](Event(event_type=EventType.MP_TOKENS, metadata=bound))
    keys = entries("m") + entries(VARIANT)
    meta = [L1ObjectMeta(size_bytes=1, backend=L1BackendType.DRAM)] * 4
    kind = EventType.L1_WRITE_FINISHED
    handlers[kind](Event(event_type=kind, metadata={"keys": keys, "meta": meta}))
    events.flush()
    return Sink.seen

def check_directory():
    import numpy as np
    from lmcache.v1.mp_coordinator import api
    try:
        from lmcache.v1.mp_coordinator.views import key_directory
    except ModuleNotFoundError:
        from lmcache.v1.mp_coordinator import key_directory
    directory = key_directory.KeyDirectory()
    directory.enable_blend_lookup(chunk_size=4, probe_stride=1)
    keys = {name: entries(name)[0] for name in ("m", VARIANT)}

    def told(kind, seq, *names):
        # A server without the edits tells tokens of a variant as well.
        directory.consume(api.CacheEventBatch(
            instance_id="i", incarnation=1, seq=seq, event_type=api.CacheEventType(kind),
            tier=key_directory.Tier.L1, backend="dram",
            entries=[
                api.CacheEventEntry(
                    keys[name].to_encoded_object_key(), 1, [0, 1, 2, 3], token_offset=0
                )
                for name in names
            ],
        ))

    def seen():
        query = np.array([0, 1, 2, 3], dtype=np.uint32)
        spaces = [()]
        if hasattr(api, "BlendNamespace"):
            spaces = [(api.BlendNamespace(name, "", 1),) for name in keys]
        return {
            "tokens": [
                list(directory.get_token_ids([key_directory.token_binding_name(key)])[0])
                for key in keys.values()
            ],
            "placed": [len(found) for found in directory.lookup(list(keys.values()))],
            "offers": [len(directory.blend_match(query, *space)) for space in spaces],
        }

    told("store", 1, VARIANT)
    alone = seen()
    told("store", 2, "m", VARIANT)
    both = seen()
    told("delete", 3, "m")
    left = seen()
    groups = None
    if hasattr(directory, "get_keys_across_object_groups"):
        from dataclasses import replace
        keys["other group"] = replace(keys[VARIANT], object_group_id=1)
        told("store", 4, "other group", "m")
        del keys["other group"]
        found = directory.get_keys_across_object_groups(list(keys.values()))
        groups = [[key.model_name, key.object_group_id] for key in found]
    return {"alone": alone, "both": both, "left": left, "groups": groups}

def check_fingerprints():
    module = loaded("blend.store")
    cls = module.StoreMixin if module else loaded("blend_v3").BlendV3Module
    found = {}
    for name in ("m", VARIANT):
        jobs, prompts = [], []
        queue = SimpleNamespace(put_nowait=jobs.append)
        session = SimpleNamespace(
            set_tokens=lambda tokens: None,
            get_hashes=lambda start, end: [bytes([7] * 32), bytes([8] * 32)],
        )
        blend = SimpleNamespace(
            _transfer_module=SimpleNamespace(
                store=lambda *a: (b"", True),
                store_with_chunk_mask=lambda *a: (b"", True, [True, True]),
                get_and_touch_context_entry=lambda instance_id: None,
            ),
            _ctx=SimpleNamespace(
                session_manager=SimpleNamespace(get_or_create=lambda request_id: session),
                chunk_size=4,
            ),
            _pending_fp_lock=threading.Lock(), _pending_fp_hashes=set(),
            _fingerprint_queue=queue, _prompt_store=object(),
            _record_prompt=lambda key, session: prompts.append(key.model_name),
        )
        answer = cls.store(blend, ipc(name), 1, [[]], b"")
        found[name] = [answer[1], len(jobs), len(blend._pending_fp_hashes), len(prompts)]
    return found

def check_blend():
    found = {}
    for name in ("blend", "blend_v3", "blend.lookup", "blend.retrieve", "blend.module"):
        module = loaded(name)
        if module is None:
            continue
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ != module.__name__:
                continue
            for function, body in vars(cls).items():
                if not (function.startswith("cb_") and inspect.isfunction(body)):
                    continue
                parameters = list(inspect.signature(body).parameters)
                if parameters[1:2] != ["key"]:
                    continue
                try:
                    body(None, ipc(VARIANT), *[None] * (len(parameters) - 2))
                    found[function] = "served"
                except Exception as error:
                    found[function] = str(error)
    return found

def check_kv_events():
    module = loaded("kv_events")
    if module is None:
        return "absent"
    bus = SimpleNamespace(
        enabled=True, subscribe_drops=lambda f: None, subscribe=lambda kind, f: None
    )
    log = module.KVEventModule(SimpleNamespace(event_bus=bus), 16)
    bound = {
        "chunk_hashes": [bytes([0] * 32), bytes([1] * 32)],
        "token_chunks": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "parent_hashes": [None, bytes([0] * 32)],
    }
    log._record_kv_event(Event(event_type=EventType.MP_TOKENS, metadata=bound))
    for kind in (EventType.L1_WRITE_FINISHED, EventType.L1_KEYS_EVICTED):
        keys = entries("m") + entries(VARIANT)
        log._record_kv_event(Event(event_type=kind, metadata={"keys": keys}))
    return {
        name: [record.kind for record in log.read_kv_events(name, 0, 64).events]
        for name in ("m", VARIANT)
    }

def check_worker():
    try:
        from lmcache.integration.vllm import vllm_multi_process_adapter as adapters
    except ModuleNotFoundError as error:
        return "no " + str(error.name)
    build = getattr(adapters.LMCacheMPWorkerAdapter, "_build_store_kv_events", None)
    if build is None:
        return "absent"
    adapter = SimpleNamespace(
        _kv_event_hasher=SimpleNamespace(compute_chunk_hashes=lambda t, end: [b"a", b"b"]),
        lmcache_tokens_per_chunk=4,
    )
    return {name: len(build(adapter, ipc(name))) for name in ("m", VARIANT)}

names = [name for name in list(globals()) if name.startswith("check_")]
print(json.dumps({name[6:]: globals()[name]() for name in names}))
"""
VARIANT = "m##tv1-q1" + "b" * 32


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched LMCache tells others, by the name of the check; one process for all."""
    lmcache.apply([IDENTITY, KEYS, CODEMOD])
    return lmcache.run(CHECKS)


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY, KEYS)


def test_tokens_are_bound_to_ordinary_entries_only(found: Any) -> None:
    assert found["bindings"] == {"m": 1, VARIANT: 0}


def test_the_coordinator_gets_no_tokens_of_a_variant(found: Any) -> None:
    assert found["stamps"] == {"m": [[0, 1, 2, 3], [4, 5, 6, 7]], VARIANT: [[], []]}


def test_the_directory_gives_a_variant_no_tokens(found: Any, lmcache: LMCacheCopy) -> None:
    old = lmcache.version == "0.5.4"
    tokens = [0, 1, 2, 3]
    seen = found["directory"]
    none = [0] if old else [0, 0]
    assert seen["alone"] == {"tokens": [[], []], "placed": [0, 1], "offers": none}
    offers = [1] if old else [1, 0]
    assert seen["both"] == {"tokens": [tokens, []], "placed": [1, 1], "offers": offers}
    assert seen["left"] == {"tokens": [[], []], "placed": [0, 1], "offers": none}
    if lmcache.version == "0.5.6":
        # What lies in several object groups stays together, each under its own name.
        assert seen["groups"] == [["m", 0], [VARIANT, 0], [VARIANT, 1]]


def test_a_variants_store_leaves_no_fingerprint(found: Any) -> None:
    stored, jobs, pending, _ = found["fingerprints"]["m"]
    assert (stored, jobs) == (True, 1)
    assert pending > 0
    assert found["fingerprints"][VARIANT] == [True, 0, 0, 0]


def test_blending_refuses_a_variant(found: Any, lmcache: LMCacheCopy) -> None:
    blend = found["blend"]
    assert {"cb_retrieve_pre_computed", "cb_unified_lookup"} <= set(blend)
    assert ("cb_store_final" in blend) == (lmcache.version == "0.5.4")
    assert ("cb_reorder_plan" in blend) == (lmcache.version == "0.5.6")
    assert all("can't serve a variant" in text for text in blend.values())


def test_server_events_leave_a_variant_out(found: Any, lmcache: LMCacheCopy) -> None:
    if lmcache.version != "0.5.6":
        assert found["kv_events"] == "absent"
        return
    assert found["kv_events"] == {"m": ["stored", "stored", "removed"], VARIANT: []}


def test_worker_events_leave_a_variant_out(found: Any, lmcache: LMCacheCopy) -> None:
    if str(found["worker"]).startswith("no "):
        pytest.skip(f"the engine's Python has {found['worker']}")
    expected = {"m": 2, VARIANT: 0} if lmcache.version == "0.5.6" else "absent"
    assert found["worker"] == expected
