# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_key_variant,
    lmcache_labels,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
CODEMOD = lmcache_labels.CODEMOD

CHECKS = """
import asyncio, json
from types import SimpleNamespace
from fastapi.encoders import jsonable_encoder
from lmcache.v1.distributed.api import KeyEntry, KeyListPage, ObjectKey, Tier
from lmcache.v1.mp_observability.event import Event, EventType
from lmcache.v1.mp_observability.subscribers.logging import lookup_hash
from lmcache.v1.mp_observability.subscribers.metrics import (
    engine, l0_l1_throughput, l1_failures, l2_failures, lookup,
)
from lmcache.v1.multiprocess.cache_control.object_service import ObjectService

MODELS = ["m", "m##tv1-q1" + "b" * 32, "m##query##tv1-r1" + "a" * 32]

class Instrument:
    def __init__(self):
        self.labels = []

    def add(self, value, attributes=None):
        self.labels.append((attributes or {}).get("model_name"))

    record = add

class Instruments:
    # Stands for a subscriber: whatever instrument it uses, the labels are kept.
    def __init__(self):
        self.one = Instrument()

    def __getattr__(self, name):
        return self.one

def labels(function, **metadata):
    kept = Instruments()
    for model in MODELS:
        keys = [ObjectKey(bytes(32), model, 0x01000100)]
        given = {"model_name": model, "keys": keys} | metadata
        function(kept, Event(event_type=next(iter(EventType)), metadata=given))
    return kept.one.labels

def check_lookup():
    event = lambda model: Event(event_type=next(iter(EventType)), metadata={"model_name": model})
    return [lookup._lookup_attrs(event(model))["model_name"] for model in MODELS]

def check_engine():
    return labels(
        engine.EngineMetricsSubscriber._on_retrieve_end, retrieved_count=1, engine_id=1
    )

def check_l1_allocation():
    return labels(l1_failures.L1FailureMetricsSubscriber._on_allocation_failed, during="x")

def check_l1_read():
    function = l1_failures.L1FailureMetricsSubscriber._on_read_failed
    return labels(function, during="x", reason="y")

def check_l2():
    return labels(l2_failures.L2FailureMetricsSubscriber._on_prefetch_failed, reason="y")

def check_throughput():
    cls = l0_l1_throughput.L0L1ThroughputSubscriber
    if hasattr(cls, "_metric_attributes"):
        event = lambda model: Event(
            event_type=next(iter(EventType)), metadata={"model_name": model}
        )
        return [cls._metric_attributes(event(model))["model_name"] for model in MODELS]
    found = Instrument()
    for model in MODELS:
        metadata = {"model_name": model, "total_bytes": 8, "device": "cpu", "session_id": "x"}
        event = Event(event_type=next(iter(EventType)), session_id="x", metadata=metadata)
        event.timestamp = 2.0
        key = cls._correlation_key(event)
        cls._record(event, {key: 1.0}, found)
    return found.labels

def check_log():
    lines = []
    log = SimpleNamespace(
        _needs_rotation=lambda now: False,
        _current_handle=SimpleNamespace(
            write=lines.append, flush=lambda: None, tell=lambda: 0
        ),
    )
    for model in MODELS:
        event = Event(event_type=next(iter(EventType)), metadata={"model_name": model})
        lookup_hash.LookupHashLoggingSubscriber._on_lookup_hashes(log, event)
    return [
        {k: v for k, v in json.loads(text).items() if k in ("model_name", "variant")}
        for text in lines
    ]

def check_spans():
    from lmcache.v1.mp_observability.subscribers.tracing import mp_server

    class Span:
        def __init__(self):
            self.seen = {}
        def set_attribute(self, name, value):
            self.seen[name] = value
        def end(self, **given):
            pass

    spans = []

    class Tracer:
        def start_span(self, name, **given):
            spans.append(Span())
            return spans[-1]

    # Without OpenTelemetry in this Python the subscriber does nothing.
    mp_server._HAS_OTEL, mp_server._tracer = True, Tracer()
    mp_server.trace = SimpleNamespace(set_span_in_context=lambda span: None)
    for model in MODELS:
        subscriber = mp_server.MPServerTracingSubscriber()
        subscriber._get_or_create_request_span = lambda *given: (Span(), None)
        for kind in ("MP_STORE_START", "MP_STORE_END"):
            handler = subscriber._on_start if kind.endswith("START") else subscriber._on_end
            handler(Event(
                event_type=EventType[kind], session_id="s",
                metadata={"model_name": model, "of_" + kind: 1},
            ))
    names = ("model_name", "variant", "of_MP_STORE_START", "of_MP_STORE_END")
    return [[span.seen.get(name) for name in names] for span in spans]

def check_objects():
    entries = tuple(
        KeyEntry(ObjectKey(bytes(32), model, 0x01000100).to_encoded_object_key(), 5)
        for model in MODELS
    )
    page = KeyListPage(entries=entries, next_page_token=None)
    description = SimpleNamespace(type_name="fs", config=SimpleNamespace(shared=False))
    adapter = SimpleNamespace(list_l2_keys=lambda **given: page)
    manager = SimpleNamespace(l2_adapters=lambda: [(description, adapter)])
    service = ObjectService(SimpleNamespace(storage_manager=manager))
    answer = asyncio.run(service.list_objects(Tier.L2, None, None, 10, None))
    plain = {"key": jsonable_encoder(entries[0])["key"], "size_bytes": 5}
    listed = jsonable_encoder(answer["entries"])
    return [listed[0] == plain, [entry["key"]["model_name"] for entry in listed], listed[1:]]

def check_coordinator():
    try:
        from lmcache.cli.commands.query import _coordinator
    except ImportError:
        return "absent"

    class Metrics:
        def add(self, *given):
            pass

        def add_table(self, *given):
            self.columns = [column for column, _ in given[2:]]
            self.rows = []
            return self

        def add_row(self, **row):
            self.rows.append(row)

    def shown(*models):
        metrics = Metrics()
        keys = [{"key": {"model_name": model, "chunk_hash_hex": "00"}} for model in models]
        _coordinator._render_keys({"keys": keys}, metrics)
        rows = [[row["model"], row.get("variant")] for row in metrics.rows]
        return [metrics.columns[5:], rows]

    return [shown("m"), shown(*MODELS)]

names = [name for name in list(globals()) if name.startswith("check_")]
print(json.dumps({name[6:]: globals()[name]() for name in names}))
"""
Q, R = "q1" + "b" * 32, "r1" + "a" * 32


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched LMCache shows, by the name of the check; one process for all."""
    lmcache.apply([IDENTITY, KEYS, CODEMOD])
    return lmcache.run(CHECKS)


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY, KEYS)


@pytest.mark.parametrize(
    "where", ["lookup", "engine", "l1_allocation", "l1_read", "l2", "throughput"]
)
def test_a_label_is_the_model_alone(found: Any, where: str) -> None:
    assert found[where] == ["m", "m", "m##query"]


def test_the_log_of_lookups_shows_both_apart_and_no_request_local_one(found: Any) -> None:
    assert found["log"] == [
        {"model_name": "m"},
        {"model_name": "m", "variant": Q},
    ]


def test_a_span_shows_both_apart_and_names_no_request_local_one(found: Any) -> None:
    assert found["spans"] == [
        ["m", None, "1", "1"],
        ["m", Q, "1", "1"],
        ["m##query", None, "1", "1"],
    ]


def test_a_listed_object_shows_both_and_keeps_its_key(found: Any) -> None:
    ordinary_unchanged, keys, (first, second) = found["objects"]
    assert ordinary_unchanged
    assert keys == ["m", f"m##tv1-{Q}", f"m##query##tv1-{R}"]
    assert (first["model_name"], first["variant"]) == ("m", Q)
    assert (second["model_name"], second["variant"]) == ("m##query", R)


def test_the_command_line_shows_both_where_there_are_variants(
    found: Any, lmcache: LMCacheCopy
) -> None:
    if lmcache.version == "0.5.4":
        assert found["coordinator"] == "absent"
        return
    plain, mixed = found["coordinator"]
    assert plain == [[], [["m", None]]]
    assert mixed == [["variant"], [["m", "--"], ["m", Q], ["m##query", R]]]
