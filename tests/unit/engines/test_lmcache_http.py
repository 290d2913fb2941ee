# SPDX-License-Identifier: Apache-2.0
"""The HTTP client against a server that misbehaves in ways a real one won't on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

pytest.importorskip("requests", reason="requests lives in the engine environment")

from kvseal.engines import lmcache_http
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.errors import EngineError, EvidenceError

METRICS = (
    "lmcache_mp_event_bus_queue_depth {queued}\n"
    "lmcache_mp_event_bus_dropped_events_total 0\n"
    'lmcache_mp_num_chunks_loaded_total{{cache_salt="",model_name="/m"}} {loaded}\n'
)


class State:
    """What the misbehaving server answers."""

    def __init__(self) -> None:
        self.l1 = {
            "total_object_count": 3,
            "write_locked_count": 0,
            "read_locked_count": 0,
            "memory_used_bytes": 300,
            "write_ttl_seconds": 600,
        }
        self.adapters = 0
        self.clears = True
        self.queued = 0
        self.loaded: Iterator[int] = iter([])
        self.last = 0
        self.raw: str | None = None

    def answer(self, path: str) -> str:
        if self.raw is not None:
            return self.raw
        if path == "/metrics":
            self.last = next(self.loaded, self.last)
            return METRICS.format(queued=self.queued, loaded=self.last)
        if path == "/config":
            return json.dumps({"mp": {"chunk_size": 64}})
        if path == "/cache/clear" and self.clears:
            self.l1 |= {"total_object_count": 0, "memory_used_bytes": 0}
        manager = {"l1_manager": self.l1, "num_l2_adapters": self.adapters}
        return json.dumps({"storage_manager": manager})


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def client(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[LMCacheHTTP]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = state.answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  (BaseHTTPRequestHandler's name)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    monkeypatch.setattr(lmcache_http, "SETTLE_SECONDS", 0.3)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield LMCacheHTTP(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_clear_counts_before_and_after(client: LMCacheHTTP) -> None:
    before, after = client.clear()
    assert (before.objects, after.objects) == (3, 0)


def test_objects_that_survive_a_clear_are_an_error(client: LMCacheHTTP, state: State) -> None:
    state.clears = False
    with pytest.raises(EngineError, match="kept objects"):
        client.clear()


def test_a_store_under_way_is_not_cleared_away(client: LMCacheHTTP, state: State) -> None:
    state.l1["write_locked_count"] = 1
    with pytest.raises(EngineError, match="stay locked"):
        client.wait_unlocked(timeout_seconds=0.1)
    assert client.object_count() == 3


def test_l2_storage_survives_a_clear_and_is_refused(client: LMCacheHTTP, state: State) -> None:
    state.adapters = 1
    with pytest.raises(EngineError, match="L2"):
        client.clear()


def test_counters_are_read_when_they_rest(client: LMCacheHTTP, state: State) -> None:
    state.loaded = iter([1, 2, 3, 3])
    assert client.hit_counters("/m").loaded == 3 * 64


def test_counters_that_never_rest_are_no_evidence(client: LMCacheHTTP, state: State) -> None:
    state.loaded = iter(range(100000))
    with pytest.raises(EvidenceError, match="did not settle"):
        client.hit_counters("/m")
    state.loaded, state.queued = iter([]), 1
    with pytest.raises(EvidenceError, match="did not settle"):
        client.hit_counters("/m")


def test_another_service_on_the_port_is_recognised(client: LMCacheHTTP, state: State) -> None:
    state.raw = "<html>"
    with pytest.raises(EngineError, match="no JSON"):
        client.status()
    with pytest.raises(EngineError, match="no JSON"):
        client.hit_counters("/m")
