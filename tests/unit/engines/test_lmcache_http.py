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
from kvseal.errors import EngineError, EvidenceError, PrerequisiteError

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
        self.status = 200
        self.asked: list[str] = []

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
            state.asked.append(f"{self.command} {self.path}")
            body = state.answer(self.path).encode()
            self.send_response(state.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815  (BaseHTTPRequestHandler's names)

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


VARIANTS = {letter: f"{letter}1{'a' * 32}" for letter in "rqpg"}
ANNOUNCED = ["transform_identity_v1", "transform_identity_v1:r", "transform_identity_v1:q"]


def test_a_server_that_announces_a_scope_is_sent_its_variants(
    client: LMCacheHTTP, state: State
) -> None:
    state.raw = json.dumps({"capabilities": ANNOUNCED})
    assert client.capabilities() == ANNOUNCED
    client.require_variant(VARIANTS["r"])
    client.require_variant(VARIANTS["q"])
    for letter, scope in (("p", "prefix"), ("g", "global")):
        with pytest.raises(PrerequisiteError, match=scope) as caught:
            client.require_variant(VARIANTS[letter])
        assert caught.value.value == ANNOUNCED
        assert caught.value.expected == f"transform_identity_v1:{letter}"
        assert "LMCACHE_TRANSFORM_SCOPES" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"capabilities": None},
        {"capabilities": "transform_identity_v1:q"},
        {"capabilities": []},
        {"capabilities": [{}, 1, None, "transform_identity_v2:q", "transform_identity_v1"]},
        {"capabilities": ["transform_identity_v1:r", "xtransform_identity_v1:q"]},
    ],
)
def test_a_server_that_does_not_is_sent_none(
    client: LMCacheHTTP, state: State, status: dict[str, Any]
) -> None:
    state.raw = json.dumps(status)
    with pytest.raises(PrerequisiteError, match="nothing was stored"):
        client.require_variant(VARIANTS["q"])


def test_a_server_is_asked_each_time(client: LMCacheHTTP, state: State) -> None:
    """It may have been started anew, without the edits."""
    state.raw = json.dumps({"capabilities": ANNOUNCED})
    client.require_variant(VARIANTS["q"])
    state.raw = "{}"
    with pytest.raises(PrerequisiteError, match="kvseal patch apply"):
        client.require_variant(VARIANTS["q"])


def test_leases_end_by_the_variants_text(client: LMCacheHTTP, state: State) -> None:
    state.raw = '{"deleted": 3}'
    assert client.end_lease(VARIANTS["r"]) == 3
    assert state.asked == [f"DELETE /transform/leases/{VARIANTS['r']}"]
    state.raw = "{}"
    with pytest.raises(EngineError, match="did not say"):
        client.end_lease(VARIANTS["r"])
    state.status, state.raw = 400, '{"error": "not request-local"}'
    with pytest.raises(EngineError, match="not request-local"):
        client.end_lease(VARIANTS["q"])
    asked = len(state.asked)
    for wrong in ("", "r1short", f"../{VARIANTS['r']}"):
        for call in (client.end_lease, client.require_variant):
            with pytest.raises(EvidenceError, match="variant"):
                call(wrong)
    assert len(state.asked) == asked, "no text of that kind is in a path"
