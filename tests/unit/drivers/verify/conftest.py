# SPDX-License-Identifier: Apache-2.0
"""A verification with everything real but the engines: those are small classes that keep a cache.

They hit what vLLM and LMCache hit, so that a whole run passes; a test then
changes one thing of one engine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from kvseal.drivers.verify import drive, evidence
from kvseal.drivers.verify.ground import Ground
from kvseal.drivers.verify.lmcache_settings import Settings
from kvseal.drivers.verify.preflight import Prepared
from kvseal.drivers.verify.run import run
from kvseal.engines.lmcache import CacheServer, LMCacheEndpoint
from kvseal.engines.lmcache_counters import HitCounters
from kvseal.engines.offline.protocol import Answer, EngineArguments, Question
from kvseal.models.directory import ModelDirectory
from kvseal.records import verification
from kvseal.records.history import Event, read_history
from kvseal.records.places import Places
from kvseal.spec.contracts import LMCACHE_SETTINGS
from kvseal.spec.verify_request import VerifyRequest
from kvseal.workload.probes import Geometry, build_probes, expected_cached

PROBE_TESTS = Path(__file__).parents[2] / "workload" / "probes"
GEOMETRY = Geometry(chunk_tokens=64, block_tokens=16, max_model_len=4096)
TAG = "lmcache.tag.kvseal_scope"
GENERATED = 4
ENDPOINT = LMCacheEndpoint("127.0.0.1", 7001, 7002, 7003)
ROWS = [
    {"tokens": 127, "reuse_count": 1, "format": "chat"},
    {"tokens": 128, "reuse_count": 1, "format": "chat"},
    {"tokens": 129, "reuse_count": 1, "format": "chat"},
    {"tokens": 300, "reuse_count": 3, "format": "chat"},
]


class Engine:
    """Answers a prompt always alike, and counts what its cache would have served."""

    def __init__(self, stage: Stage, target: str, arguments: EngineArguments, log: Path) -> None:
        self.stage, self.target, self.arguments, self.log = stage, target, arguments, log
        self.described = described(arguments)
        self.status: int | None = None
        self.stored: dict[str | None, list[list[int]]] = {}

    def ask(self, question: Question) -> Answer:
        self.stage.asked.append((self.target, question))
        hook = self.stage.on_ask.get(self.target)
        hits = self._hits(question)
        first = sum(question.token_ids) % 1000
        generated = [first + number for number in range(question.max_tokens)]
        answer = Answer(
            prompt_token_ids=question.token_ids,
            token_ids=generated,
            cached_tokens=hits,
            finish_reason="length",
            top2=[[[token, -0.25], [token + 1, -4.0]] for token in generated],
        )
        if self.target == "mp":
            self.stage.server.serve(question, hits)
        return answer if hook is None else hook(self, question, answer) or answer

    def _hits(self, question: Question) -> int:
        if self.target == "control":
            return 0
        # An in-process LMCache sees no salt, and keeps what carries no tag together.
        tag = question.kv_transfer_params.get(TAG)
        kept = self.stored.setdefault(tag if self.target == "lmcache" else question.scope, [])
        known = max((common(question.token_ids, prompt) for prompt in kept), default=0)
        kept.append(question.token_ids)
        return expected_cached(self.target, len(question.token_ids), GEOMETRY, known)

    def write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(text)


class Server:
    """An LMCache server as its HTTP side shows it; stores arrive after some looks at it."""

    def __init__(self) -> None:
        self.objects = self.loaded = 0
        self.arriving: list[int] = []
        self.lag = 0
        self.looks = 0
        self.salts: list[tuple[str, str]] = []
        self.known: dict[str, set[tuple[int, ...]]] = {}

    def serve(self, question: Question, hits: int) -> None:
        chunk = GEOMETRY.chunk_tokens
        self.loaded += -(-hits // chunk) * chunk
        kept = self.known.setdefault(question.scope, set())
        for end in range(chunk, len(question.token_ids) + 1, chunk):
            prefix = tuple(question.token_ids[:end])
            if prefix not in kept:
                kept.add(prefix)
                self.arriving += [self.lag]

    def config(self) -> dict[str, Any]:
        return {"chunk_size": GEOMETRY.chunk_tokens}

    def object_count(self) -> int:
        self.looks += 1
        self.objects += sum(left <= 0 for left in self.arriving)
        self.arriving = [left - 1 for left in self.arriving if left > 0]
        return self.objects

    def wait_unlocked(self, *, timeout_seconds: float) -> SimpleNamespace:
        assert timeout_seconds > 0
        return SimpleNamespace(objects=self.objects)

    def hit_counters(self, model_name: str, cache_salt: str) -> HitCounters:
        self.salts.append((model_name, cache_salt))
        return HitCounters(self.loaded, 0, 0, 0)


def common(one: list[int], other: list[int]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def described(arguments: EngineArguments) -> dict[str, Any]:
    """An engine's own description, as kvseal.engines.offline.host gives it, when all is right."""
    transfer = arguments.kv_transfer
    name = None
    if transfer is not None:
        module = transfer.get("kv_connector_module_path") or (
            "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
        )
        name = f"{module}.{transfer['kv_connector']}"
    found: dict[str, Any] = {
        "model": {
            "max_model_len": arguments.max_model_len_tokens,
            "dtype": f"torch.{arguments.dtype}",
        },
        "cache": {
            "block_size": arguments.block_size_tokens,
            "enable_prefix_caching": arguments.prefix_caching,
        },
        "kv_transfer_config": transfer,
        "connector": {"scheduler": name, "worker": name},
    }
    if transfer is not None:
        effective = {**LMCACHE_SETTINGS, "chunk_size": GEOMETRY.chunk_tokens}
        found["lmcache"] = {"version": "0.5.4", "effective": effective}
    return found


Hook = Callable[[Engine, Question, Answer], Answer | None]


class Stage:
    """Where engines are started, and what was seen of them."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.places = Places(tmp_path / "report.json", tmp_path / "report.evidence")
        self.server = Server()
        self.started: list[SimpleNamespace] = []
        self.servers: list[SimpleNamespace] = []
        self.running: list[str] = []
        self.asked: list[tuple[str, Question]] = []
        self.on_start: dict[str, Callable[[Engine], None]] = {}
        self.on_ask: dict[str, Hook] = {}

    @contextmanager
    def started_offline(self, name: str, arguments: EngineArguments, **more: Any) -> Iterator[Any]:
        target = name.removesuffix(" engine")
        self.started.append(SimpleNamespace(target=target, arguments=arguments, **more))
        assert not self.running, "one engine at a time"
        more["log"].touch()
        engine = Engine(self, target, arguments, more["log"])
        self.on_start.get(target, lambda _: None)(engine)
        self.running.append(target)
        try:
            yield engine
        finally:
            self.running.remove(target)
            engine.status = 0

    @contextmanager
    def started_lmcache(self, server: CacheServer, **more: Any) -> Iterator[Any]:
        self.servers.append(SimpleNamespace(server=server, alive=True, **more))
        yield SimpleNamespace(wait_ready=lambda: None, endpoint=ENDPOINT)
        assert not self.running, "the engine leaves before its server"
        self.servers[-1].alive = False

    def prepared(self, suite: str = "smoke", **changes: Any) -> Prepared:
        """Everything as preflight would have decided it on a CPU."""
        values: dict[str, Any] = {
            "model": "/models/tiny", "model_revision": "", "tokenizer": "/models/tiny",
            "tokenizer_revision": "", "kv_connector": "none", "contract": "cpu", "suite": suite,
            "max_tokens": GENERATED, "dtype": "float32", "block_size": GEOMETRY.block_tokens,
            "chunk_size": GEOMETRY.chunk_tokens, "tenant": "a-tenant",
        }  # fmt: skip
        request = VerifyRequest(**{**values, **changes})
        model = ModelDirectory(Path("/models/tiny"), "tiny", "sha256:0", {}, changed=False)
        settings = None
        if request.lmcache_config is not None:
            effective = {**LMCACHE_SETTINGS, "chunk_size": GEOMETRY.chunk_tokens}
            settings = Settings(request.lmcache_config, "chunk_size: 64\n", effective, {}, ())
        toy = SimpleNamespace(**runpy.run_path(str(PROBE_TESTS / "toy.py")))
        probes = build_probes(
            suite,
            formats=request.formats,
            reuse_counts=request.reuse_counts,
            geometry=GEOMETRY,
            max_tokens=request.max_tokens,
            seed=request.seed,
            tokenizer=toy.Words(),
            lengths=ROWS if suite == "acceptance" else None,
        )
        contract = request.evidence_contract
        ground = Ground(contract.devices[0], {}, [], [])
        return Prepared(
            request, contract, ground, model, model, settings, GEOMETRY, probes, None, None
        )

    def lmcache(self, suite: str = "smoke", **changes: Any) -> Prepared:
        """An LMCache inside the engine."""
        file = self.folder / "lmcache.yaml"
        return self.prepared(
            suite, kv_connector="LMCacheConnectorV1", lmcache_config=file, **changes
        )

    def mp(self, suite: str = "smoke", **changes: Any) -> Prepared:
        """An LMCache server."""
        return self.prepared(suite, kv_connector="LMCacheMPConnector", contract="mp", **changes)

    def verify(self, prepared: Prepared, **more: Any) -> dict[str, Any]:
        return run(prepared, self.places, **more)

    def events(self, name: str | None = None) -> list[Event]:
        history = read_history(self.places.history, verification.TABLE)
        return [event for event in history.events if name in (None, event.name)]

    def questions(self, target: str) -> list[Question]:
        return [question for name, question in self.asked if name == target]

    def first(self, prepared: Prepared, count: int) -> Prepared:
        """The same with its first probes alone."""
        return dataclasses.replace(prepared, probes=prepared.probes[:count])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    found = Stage(tmp_path)
    monkeypatch.setattr(drive, "started_offline", found.started_offline)
    monkeypatch.setattr(drive, "started_lmcache", found.started_lmcache)
    monkeypatch.setattr(drive, "LMCacheHTTP", lambda url: found.server)
    monkeypatch.setattr(drive, "STORE_POLL_SECONDS", 0.001)
    monkeypatch.setattr(drive, "STORE_SECONDS", 5.0)
    # Nobody pulls the plug here, and a busy disk takes seconds.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with mock.patch.dict(os.environ):
        yield found


@pytest.fixture
def refreshed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every report as it lay on disk after it was made anew."""
    found: list[dict[str, Any]] = []
    made = evidence.Evidence.refresh

    def refresh(self: evidence.Evidence) -> dict[str, Any]:
        report = made(self)
        on_disk = json.loads(stage.places.report.read_text(encoding="utf-8"))
        assert on_disk == report
        found.append(on_disk)
        return report

    monkeypatch.setattr(evidence.Evidence, "refresh", refresh)
    return found
