# SPDX-License-Identifier: Apache-2.0
"""One LMCache server and one vLLM of a backend, each of which can be restarted alone.

Ports, second tier and variant index stay the same over a restart, as they would
on a node whose service was restarted. Writes no history.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvseal.backends.backend import Running, Site
from kvseal.backends.needs import join_path
from kvseal.backends.registry import backend as backend_named
from kvseal.compaction.rope_config import rope_from_config
from kvseal.drivers.matrix.listener import Listener
from kvseal.engines.completions import CompletionClient
from kvseal.engines.geometry import ModelShape
from kvseal.engines.lmcache import CacheServer, LMCacheEndpoint, started_lmcache
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.sdk import KVCacheSDK
from kvseal.engines.server import E, StartedServer
from kvseal.engines.vllm import VLLMEndpoint, started_vllm
from kvseal.errors import EngineError
from kvseal.models.directory import ModelDirectory
from kvseal.process import free_port, segment_name
from kvseal.spec.runspec import MatrixSpec
from kvseal.workload.matrix.case import BEHIND, MP, NATIVE

HEARTBEAT_SECONDS = 5.0
"""How often vLLM looks for its cache server, and how long it waits for the answer. A second was
too short on busy cores, and a load that fails because of it ends vLLM (docs/upstream-notes.md)."""
UNSEEN_SECONDS = 2 * HEARTBEAT_SECONDS + 1
"""So long, and each side of vLLM has looked for its server once, and waited in vain or found it."""
REGISTER_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1
PACKAGES = "backends"
"""Folder of an engine environment with requirements/backends.txt in it, if it was asked for."""
INDEX_VARIABLE = "LMCACHE_TRANSFORM_INDEX"


class EngineGoneError(EngineError):
    """An engine under test has ended: nothing can be said of what is asked after that."""


@dataclass(frozen=True)
class Bench:
    """What every engine of a run is started with."""

    spec: MatrixSpec
    model: ModelDirectory
    logs: Path
    run_id: str


class Lab:
    """The engines of one backend; a context manager. First `start`, then `connect`."""

    def __init__(self, bench: Bench, backend: str, store: Path) -> None:
        """`store` is a folder for what the server keeps on disk."""
        self._bench = bench
        self.backend = backend
        self.disk, self.index, self.lookup_log = (
            store / name for name in ("kv", "index", "lookups")
        )
        self._listener = Listener() if backend == MP else None
        self._starts = 0
        self._behind: Running | None = None
        self._behind_parts, self._server_parts, self._engine_parts, self._client_parts = (
            ExitStack() for _ in "1234"
        )
        self._lmcache: StartedServer[LMCacheEndpoint] | None = None
        self._vllm: StartedServer[VLLMEndpoint] | None = None
        server = CacheServer.of(bench.spec)
        self._server = replace(
            server,
            port=server.port or free_port(),
            http_port=server.http_port or free_port(),
            arguments=self._watched(),
        )

    def _watched(self) -> tuple[str, ...]:
        """In one backend the server tells what it does: to a coordinator, and in a log."""
        if self._listener is None:
            return ()
        self.lookup_log.mkdir(parents=True)
        return (*self._listener.arguments, "--lookup-hash-log-dir", str(self.lookup_log))

    def heard(self, cache_salt: str) -> list[dict[str, Any]]:
        """Return the stored entries of one tenant that a coordinator was told of."""
        return [] if self._listener is None else self._listener.entries(cache_salt)

    def __enter__(self) -> Lab:
        if self._listener is not None:
            self._listener.__enter__()
        if self.backend in BEHIND:
            self._start_behind()
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as all_of_them:  # every one is closed, whichever fails
            if self._listener is not None:
                all_of_them.callback(self._listener.__exit__)
            for parts in (
                self._behind_parts,
                self._server_parts,
                self._engine_parts,
                self._client_parts,
            ):
                all_of_them.callback(parts.close)

    def start(self) -> None:
        """Start both, without waiting: they come up side by side."""
        self._start_server()
        self._start_engine()

    def restart(self, what: str) -> None:
        """Stop and start again `engine`, `server` or `both`."""
        self._client_parts.close()
        if what != "server":
            self._engine_parts.close()
        if what != "engine":
            self._server_parts.close()
            if what == "server":
                # vLLM's worker registers again only after it has missed an answer: a server that is
                # back before a heartbeat's time is out is taken for one that was never away.
                time.sleep(UNSEEN_SECONDS)
            self._start_server()
        if what != "server":
            self._start_engine()
        self.connect()
        if what == "server":
            # The scheduler's side of vLLM looks by itself whether the server is back.
            time.sleep(UNSEEN_SECONDS)

    def describe(self) -> dict[str, dict[str, Any]]:
        """What each engine is and reported of itself, for the history."""
        return {
            "vllm": {"url": self.client.base_url, "layout": self.sdk.layout.name},
            "lmcache": {"url": self.cache.base_url, "config": self.cache.config()},
        }

    @property
    def endpoint(self) -> LMCacheEndpoint:
        """Where the cache server is."""
        return _running(self._lmcache).endpoint

    def watch(self) -> None:
        """Raise EngineGoneError when one of them is gone."""
        for server in (self._lmcache, self._vllm):
            if server is not None:
                try:
                    server.process.check()
                except EngineError as error:
                    raise EngineGoneError(error.message, remedy=error.remedy) from error

    def require_ready(self) -> None:
        """Raise EngineGoneError unless both answer: then an error was about one request."""
        self.watch()
        for server in (self._lmcache, self._vllm):
            if server is not None and not server.endpoint.ready():
                raise EngineGoneError(
                    "an engine does not answer any more", remedy="read the logs of this run"
                )

    def wipe(self) -> None:
        """Empty the second tier, where that can be done under a running server."""
        if self._behind is not None and self._behind.on_wipe is not None:
            self._behind.wipe()

    def _start_behind(self) -> None:
        """Start the second tier: before any engine, and once for all their restarts."""
        behind, bench = backend_named(self.backend), self._bench
        packages = packages_of(sys.executable)
        behind.require(
            version=bench.spec.lmcache.version, python=sys.executable, python_path=packages
        )
        self._behind = self._behind_parts.enter_context(
            behind.started(Site(self.disk, bench.run_id, bench.logs, packages=packages))
        )
        python_path = join_path(self._behind.python_path)
        self._server = replace(
            self._server,
            l2_adapters=self._behind.adapters,
            environment={
                INDEX_VARIABLE: str(self.index),
                **({"PYTHONPATH": python_path} if python_path else {}),
                **self._behind.environment,
            },
        )

    def _start_server(self) -> None:
        bench = self._bench
        self._starts += 1
        self._lmcache = self._server_parts.enter_context(
            started_lmcache(
                self._server,
                python=sys.executable,
                log=bench.logs / f"lmcache-{self.backend}-{self._starts}.log",
                segment=segment_name(f"{bench.run_id}-{self.backend}-{self._starts}"),
                run_id=bench.run_id,
            )
        )

    def _start_engine(self) -> None:
        bench = self._bench
        self._starts += 1
        self._vllm = self._engine_parts.enter_context(
            started_vllm(
                bench.spec,
                python=sys.executable,
                model=bench.model.path,
                log=bench.logs / f"vllm-{self.backend}-{self._starts}.log",
                lmcache=self.endpoint,
                run_id=bench.run_id,
                native_prefix_caching=self.backend == NATIVE,
                heartbeat_seconds=HEARTBEAT_SECONDS,
                shared_cores=True,
            )
        )

    def connect(self) -> None:
        """Wait until both are ready, and open what talks to them."""
        vllm = _running(self._vllm)
        _running(self._lmcache).wait_ready()
        vllm.wait_ready()
        self.client: CompletionClient = vllm.endpoint.client(self.watch)
        self.cache = LMCacheHTTP(self.endpoint.http_url)
        self.sdk: KVCacheSDK = self._client_parts.enter_context(self._registered())

    def _registered(self) -> KVCacheSDK:
        """Open the SDK, once the engine has told the server of its KV cache."""
        config = self._bench.model.config()
        deadline = time.monotonic() + REGISTER_TIMEOUT_SECONDS
        while not self.cache.status().get("cache_context_meta"):
            self.watch()
            if time.monotonic() > deadline:
                raise EngineError(
                    "vLLM did not register with the restarted LMCache server",
                    value=f"{REGISTER_TIMEOUT_SECONDS} s",
                    remedy="read the logs of this run",
                )
            time.sleep(POLL_SECONDS)
        return KVCacheSDK(
            url=self.endpoint.url,
            http_url=self.endpoint.http_url,
            model_name=str(self._bench.model.path),
            shape=ModelShape.from_config(config),
            device=self._bench.spec.device,
        )

    @property
    def rope(self) -> Any:
        """The model's rotary embedding, as this engine runs it."""
        limit = self._bench.spec.vllm.max_model_len_tokens
        return rope_from_config(self._bench.model.config(), max_model_len_tokens=limit)


def packages_of(python: str) -> tuple[Path, ...]:
    """Return where the packages of the second tiers are, beside the engine environment's own."""
    folder = Path(python).parent.parent / PACKAGES
    return (folder,) if folder.is_dir() else ()


def _running(server: StartedServer[E] | None) -> StartedServer[E]:
    if server is None:
        raise EngineError("the engines of this backend were not started")
    return server


@contextmanager
def lone_engine(
    bench: Bench, name: str, lmcache: LMCacheEndpoint | None
) -> Iterator[CompletionClient]:
    """Start one more vLLM: the control without any cache, or another one on the same server."""
    with started_vllm(
        bench.spec,
        python=sys.executable,
        model=bench.model.path,
        log=bench.logs / f"vllm-{name}.log",
        lmcache=lmcache,
        run_id=bench.run_id,
        heartbeat_seconds=HEARTBEAT_SECONDS,
        shared_cores=True,
    ) as started:
        started.wait_ready()
        yield started.endpoint.client(started.process.check)
