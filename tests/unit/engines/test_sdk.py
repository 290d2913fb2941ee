# SPDX-License-Identifier: Apache-2.0
"""The SDK client against a real LMCache server; LMCache's own worker side plays vLLM's part.

What the engine does here is what vLLM's connector does: it registers a KV cache
and a ring of queries, has vLLM's own operator write its cache, and stores and
loads by the server-driven path. No model runs.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")
pytest.importorskip("lmcache", reason="LMCache lives in the engine environment")
pytest.importorskip("vllm", reason="vLLM lives in the engine environment")

import requests  # noqa: E402

from kvseal.engines.geometry import ModelShape  # noqa: E402
from kvseal.engines.lmcache_http import LMCacheHTTP  # noqa: E402
from kvseal.engines.sdk import KVCacheSDK  # noqa: E402
from kvseal.errors import (  # noqa: E402
    EngineError,
    EvidenceError,
    LayoutError,
    PrerequisiteError,
    StoreError,
)
from kvseal.process import EngineProcess, free_port  # noqa: E402

pytestmark = pytest.mark.engines

CHUNK, BLOCK, LAYERS, HEADS, QUERY_HEADS, SIZE = 64, 32, 2, 3, 9, 64
SHAPE = ModelShape(LAYERS, QUERY_HEADS, HEADS, SIZE)
MODEL = "/models/tiny"
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    url: str
    http_url: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port, http_port = free_port(), free_port()
    segment = f"kvseal-test-{uuid.uuid4().hex[:8]}"
    command = [
        *(sys.executable, "-m", "lmcache.cli.main", "server", "--host", "127.0.0.1"),
        *("--port", str(port), "--http-host", "127.0.0.1", "--http-port", str(http_port)),
        *("--chunk-size", str(CHUNK), "--l1-size-gb", "0.25", "--no-l1-use-lazy"),
        *("--eviction-policy", "LRU", "--shm-name", segment),
        *("--supported-transfer-mode", "auto", "--enable", "transfer_query"),
    ]
    endpoint = Server(f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{http_port}")

    def ready() -> bool:
        try:
            return requests.get(f"{endpoint.http_url}/healthcheck", timeout=5).ok
        except requests.RequestException:
            return False

    log = tmp_path_factory.mktemp("lmcache") / "server.log"
    environment = {"LMCACHE_TRACK_USAGE": "false"}
    with EngineProcess(
        "LMCache server", command, env=environment, log=log, shared_memory=(segment,)
    ) as process:
        process.wait_ready(ready, timeout_seconds=180)
        yield endpoint


class Worker:
    """vLLM's side of the wire: a paged KV cache and a query ring, server-driven."""

    def __init__(self, server: Server, *, model: str = MODEL, queries: bool = True) -> None:
        import zmq
        from lmcache.v1.gpu_connector.utils import LayoutHints
        from lmcache.v1.multiprocess.mq import MessageQueueClient
        from lmcache.v1.multiprocess.transfer_context.worker_transfer import (
            LMCacheDrivenTransferContext,
        )
        from lmcache.v1.platform.base.event_ipc import get_event_ipc_backend

        self.model = model
        self.instance = uuid.uuid4().int & ((1 << 62) - 1)
        self.client = MessageQueueClient(server.url, zmq.Context())
        self.events = get_event_ipc_backend("cpu")
        self.kv = {f"l{i}": torch.zeros(16, HEADS, BLOCK, 2 * SIZE) for i in range(LAYERS)}
        self.ring = {f"l{i}": torch.zeros(16, BLOCK, QUERY_HEADS * SIZE) for i in range(LAYERS)}
        self.transfer = LMCacheDrivenTransferContext()
        self._register(self.transfer.register, self.kv, model, LayoutHints(kv_layout="HND"))
        if queries:
            name = f"{model}##query"
            self._register(self.transfer.register_q, self.ring, name, LayoutHints(kv_layout="HND"))

    def _register(self, register: Any, caches: Any, model: str, hints: Any) -> None:
        register(
            self.instance,
            caches,
            model,
            1,
            CHUNK // BLOCK,
            self.client,
            TIMEOUT_SECONDS,
            send_request=self._send,
            layout_hints=hints,
        )

    @staticmethod
    def _send(*arguments: Any, **named: Any) -> Any:
        from lmcache.integration.vllm.vllm_multi_process_adapter import send_lmcache_request

        return send_lmcache_request(*arguments, **named)

    def key(self, tokens: list[int], salt: str, model: str, worker: int | None = 0) -> Any:
        from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey

        return IPCCacheServerKey(
            model_name=model,
            world_size=1,
            worker_id=worker,
            token_ids=tuple(tokens),
            start=0,
            end=len(tokens),
            request_id=f"worker-{uuid.uuid4().hex}",
            cache_salt=salt,
        )

    def event(self) -> Any:
        return self.events.create_event(torch.device("cpu"))

    def prefill(self, tokens: list[int], keys: Any, values: Any, salt: str = "") -> None:
        """Write canonical K and V as vLLM does, then store the blocks."""
        from vllm import _custom_ops

        for layer, cache in enumerate(self.kv.values()):
            halves = cache.view(16, HEADS, 2 * BLOCK, SIZE).chunk(2, dim=2)
            slots = torch.arange(len(tokens))
            _custom_ops.cpu_attn_reshape_and_cache(
                keys[layer].contiguous(), values[layer].contiguous(), *halves, slots, "vec"
            )
        self._store(self.transfer.submit_store, self.kv, tokens, salt, self.model)

    def capture(self, tokens: list[int], queries: Any, salt: str = "") -> None:
        """Store queries `[layers, tokens, query_heads, head_size]`."""
        for layer, ring in enumerate(self.ring.values()):
            ring.view(-1, QUERY_HEADS * SIZE)[: len(tokens)] = queries[layer].flatten(-2)
        self._store(self.transfer.submit_q_store, self.ring, tokens, salt, f"{self.model}##query")

    def _store(self, submit: Any, caches: Any, tokens: list[int], salt: str, model: str) -> None:
        key = self.key(tokens, salt, model)
        blocks = [list(range(len(tokens) // BLOCK))]
        done = submit(
            key.request_id, key, self.instance, caches, blocks, self.event(), CHUNK // BLOCK
        )
        if not done.result(timeout=TIMEOUT_SECONDS):
            raise AssertionError(f"the server refused to store {len(tokens)} tokens")

    def load(self, tokens: list[int], salt: str = "") -> bool:
        """Look `tokens` up and load them into the cache, as for a request that hits."""
        from lmcache.v1.multiprocess.protocol import RequestType, get_response_class

        def ask(kind: Any, *payload: Any) -> Any:
            answer = self.client.submit_request(kind, list(payload), get_response_class(kind))
            return answer.result(timeout=TIMEOUT_SECONDS)

        key = self.key(tokens, salt, self.model)
        ask(RequestType.LOOKUP, key.no_worker_id_version(), 1)
        while (found := ask(RequestType.QUERY_PREFETCH_STATUS, key.request_id)) is None:
            pass
        if found * CHUNK < len(tokens):
            return False
        blocks = [list(range(len(tokens) // BLOCK))]
        done = self.transfer.submit_retrieve(
            key.request_id, key, self.instance, self.kv, blocks, self.event(), CHUNK // BLOCK
        )
        return bool(done.result(timeout=TIMEOUT_SECONDS))

    def close(self) -> None:
        from lmcache.v1.multiprocess.protocol import RequestType, get_response_class

        for kind in (RequestType.UNREGISTER_KV_CACHE, RequestType.UNREGISTER_Q_CACHE):
            self.client.submit_request(kind, [self.instance], get_response_class(kind)).result(
                timeout=TIMEOUT_SECONDS
            )
        self.client.close()


@pytest.fixture
def worker(server: Server) -> Iterator[Worker]:
    worker = Worker(server)
    LMCacheHTTP(server.http_url).clear()
    yield worker
    worker.close()


def connect(server: Server, **changes: Any) -> KVCacheSDK:
    arguments: dict[str, Any] = {
        "url": server.url,
        "http_url": server.http_url,
        "model_name": MODEL,
        "shape": SHAPE,
        "device": "cpu",
        "timeout_seconds": TIMEOUT_SECONDS,
    }
    return KVCacheSDK(**(arguments | changes))


@pytest.fixture
def sdk(server: Server, worker: Worker) -> Iterator[KVCacheSDK]:
    with connect(server) as client:
        yield client


def canonical(tokens: int, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, LAYERS, tokens, HEADS, SIZE, generator=generator))


def test_what_the_engine_wrote_is_what_is_read(sdk: KVCacheSDK, worker: Worker) -> None:
    tokens = list(range(192))
    keys, values = canonical(192)
    worker.prefill(tokens, keys, values)

    read = sdk.retrieve_kv([*tokens, 7, 8])  # the cut chunk is the engine's to compute

    assert read is not None
    assert torch.equal(read[0], keys)
    assert torch.equal(read[1], values)
    assert sdk.layout.name == "cpu-vec-transposed-hnd-fused-b32-float32"
    assert sdk.retrieve_kv([9, *tokens]) is None
    assert sdk.retrieve_kv(tokens, "another salt") is None
    # Nothing that was read stays locked.
    assert sdk.server.contents().read_locked == 0


def test_what_is_stored_is_what_the_engine_loads(sdk: KVCacheSDK, worker: Worker) -> None:
    tokens = list(range(500, 628))
    keys, values = canonical(128, seed=1)
    receipt = sdk.store_kv(keys, values, tokens, "salt")
    assert (receipt.stored_tokens, receipt.chunks, receipt.verified) == (128, 2, True)
    before = sdk.server.hit_counters(MODEL, "salt")

    assert worker.load(tokens, "salt")

    hit = sdk.server.hit_counters(MODEL, "salt").since(before)
    assert (hit.loaded, hit.found, hit.looked_up) == (128, 128, 128)
    for layer, cache in enumerate(worker.kv.values()):
        packed = sdk.layout.pack(keys, values)[0, layer].view(4, BLOCK, HEADS, 2 * SIZE)
        assert torch.equal(cache[:4].transpose(1, 2), packed)


def test_reads_by_the_sdk_are_no_hits_of_the_engine(sdk: KVCacheSDK, worker: Worker) -> None:
    tokens = list(range(64))
    worker.prefill(tokens, *canonical(64))
    before = sdk.server.hit_counters(MODEL)
    assert sdk.retrieve(tokens) is not None
    delta = sdk.server.hit_counters(MODEL).since(before)
    assert (delta.loaded, delta.found) == (0, 64)


def test_a_store_over_cached_chunks_writes_nothing_and_names_them(
    sdk: KVCacheSDK, worker: Worker
) -> None:
    tokens = list(range(192))
    worker.prefill(tokens[:128], *canonical(128))
    with pytest.raises(StoreError, match="2 of 3 chunks were already in the cache"):
        sdk.store_kv(*canonical(192, seed=2), tokens)
    contents = sdk.server.contents()
    assert (contents.objects, contents.write_locked) == (2, 0)
    with pytest.raises(StoreError, match="2 of 2 chunks"):
        sdk.store_kv(*canonical(128, seed=2), tokens[:128])
    read = sdk.retrieve_kv(tokens)
    assert read is not None
    assert torch.equal(read[0], canonical(128)[0])


@pytest.mark.parametrize("moment", ["copying", "commit"])
def test_a_store_that_fails_leaves_nothing_reserved_and_nothing_to_read(
    sdk: KVCacheSDK, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    tokens = list(range(128))
    keys, values = canonical(128)
    channel = sdk._channel("kv")
    with monkeypatch.context() as broken:
        if moment == "copying":
            copies = iter([0, 1])

            def copy(*_: Any) -> Any:
                if next(copies):
                    raise KeyboardInterrupt
                return None

            broken.setattr(torch.Tensor, "copy_", copy)
            with pytest.raises(KeyboardInterrupt):
                sdk.store_kv(keys, values, tokens)
        else:
            commits = iter([False, True])
            commit = channel._transfer.commit_store
            broken.setattr(
                channel._transfer, "commit_store", lambda *a: next(commits) and commit(*a)
            )
            with pytest.raises(StoreError, match="did not confirm"):
                sdk.store_kv(keys, values, tokens)
    contents = sdk.server.contents()
    assert (contents.objects, contents.write_locked) == (0, 0)
    assert sdk.retrieve(tokens) is None
    # The same keys can be stored at once, not after LMCache's ten-minute time limit.
    assert sdk.store_kv(keys, values, tokens).stored_tokens == 128


def test_a_store_that_fails_leaves_the_chunks_of_others(
    sdk: KVCacheSDK, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = list(range(64))
    worker.prefill(tokens, *canonical(64))
    with pytest.raises(StoreError):
        sdk.store_kv(*canonical(128, seed=3), [*tokens, *range(1000, 1064)])
    assert sdk.retrieve(tokens) is not None


def test_a_failure_that_cannot_be_undone_says_so(
    sdk: KVCacheSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = sdk._channel("kv")

    def unreachable(*_: Any) -> int:
        raise EngineError("no server")

    with monkeypatch.context() as broken:
        broken.setattr(channel._transfer, "commit_store", lambda *_: False)
        broken.setattr(sdk.server, "delete", unreachable)
        with pytest.raises(StoreError, match="could not be undone"):
            sdk.store_kv(*canonical(64), list(range(64)))
    assert sdk.server.contents().write_locked == 1  # so the message was true
    channel.delete(list(range(64)), "")


def test_bytes_that_come_back_changed_are_an_error_and_deleted(
    sdk: KVCacheSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = sdk._channel("kv")
    fill = channel._fill

    def zeros(slots: Any, indices: Any, source: Any) -> None:
        fill(slots, indices, torch.zeros_like(source))  # what CUDA in the SDK's process did

    monkeypatch.setattr(channel, "_fill", zeros)
    keys, values = canonical(64)
    with pytest.raises(StoreError, match="not the KV that was stored"):
        sdk.store_kv(keys, values, list(range(64)))
    assert sdk.server.object_count() == 0
    assert not sdk.store_kv(keys, values, list(range(64)), verify=False).verified


def test_less_than_a_chunk_is_refused(sdk: KVCacheSDK) -> None:
    for call in (sdk.retrieve, sdk.retrieve_queries):
        with pytest.raises(StoreError, match="less than one"):
            call(list(range(CHUNK - 1)))
    with pytest.raises(StoreError, match="whole chunks"):
        sdk.store_kv(*canonical(96), list(range(96)))
    with pytest.raises(StoreError, match="whole chunks"):
        sdk.store_kv(*canonical(64), list(range(128)))


def test_queries_are_read_whole(sdk: KVCacheSDK, worker: Worker) -> None:
    tokens = list(range(128))
    queries = torch.randn(LAYERS, 128, QUERY_HEADS, SIZE)
    worker.capture(tokens, queries)
    assert torch.equal(sdk.retrieve_queries([*tokens, 1]), queries)


def test_missing_queries_are_named_with_their_reasons(sdk: KVCacheSDK, worker: Worker) -> None:
    tokens = list(range(192))
    worker.prefill(tokens, *canonical(192))
    worker.capture(tokens[:64], torch.randn(LAYERS, 64, QUERY_HEADS, SIZE))
    with pytest.raises(EvidenceError, match="missing from chunk 1 on") as caught:
        sdk.retrieve_queries(tokens, wait_seconds=0.2)
    assert "prefilled in several steps" in str(caught.value)
    assert "64 of 192 tokens" in str(caught.value)
    assert sdk.server.contents().read_locked == 0


def test_an_engine_without_query_capture_is_refused_at_once(server: Server) -> None:
    worker = Worker(server, model="/models/no-queries", queries=False)
    try:
        with (
            connect(server, model_name="/models/no-queries") as client,
            pytest.raises(EvidenceError, match="transfer_intermediate_tensors"),
        ):
            client.retrieve_queries(list(range(64)))
    finally:
        worker.close()


def test_clear_is_proven_empty(sdk: KVCacheSDK, worker: Worker) -> None:
    worker.prefill(list(range(128)), *canonical(128))
    before, after = sdk.server.clear()
    assert (before.objects, after.objects, after.used_bytes) == (2, 0, 0)


def test_connecting_without_an_engine_names_those_there_are(server: Server, worker: Worker) -> None:
    with pytest.raises(LayoutError, match="/models/tiny"):
        connect(server, model_name="/models/other")


def test_sizes_that_contradict_the_engine_are_refused(server: Server, worker: Worker) -> None:
    with pytest.raises(LayoutError, match="disagree about bytes per token"):
        connect(server, shape=ModelShape(LAYERS, QUERY_HEADS, HEADS, 2 * SIZE))


def test_a_visible_gpu_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(PrerequisiteError, match="CUDA_VISIBLE_DEVICES"):
        connect(server)


def test_a_server_that_is_not_there() -> None:
    nowhere = Server("tcp://127.0.0.1:1", "http://127.0.0.1:1")
    with pytest.raises(EngineError, match="does not answer"):
        connect(nowhere)
