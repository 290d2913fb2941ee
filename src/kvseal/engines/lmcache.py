# SPDX-License-Identifier: Apache-2.0
"""Start and stop one LMCache server; the only module that knows its flags.

The L1 pool is a shared-memory segment with a name of this run's own, so that a
segment left by a killed server can be told from anyone else's and removed.
Every port is on loopback.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from kvseal.engines.server import StartedServer
from kvseal.process import EngineProcess, free_port
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


@dataclass(frozen=True)
class LMCacheEndpoint:
    """Where a running LMCache server can be reached."""

    host: str
    port: int
    http_port: int
    metrics_port: int

    @property
    def url(self) -> str:
        """Message queue address for the SDK and connectors."""
        return f"tcp://{self.host}:{self.port}"

    @property
    def http_url(self) -> str:
        """Base URL of status, configuration and cache control."""
        return f"http://{self.host}:{self.http_port}"

    def ready(self) -> bool:
        """True once the server reports itself healthy."""
        try:
            return requests.get(f"{self.http_url}/healthcheck", timeout=5).ok
        except requests.RequestException:
            return False


@dataclass(frozen=True)
class CacheServer:
    """What an LMCache server is started with.

    A port of 0 is replaced by a free one. `visible_devices` is CUDA's variable, None on
    a CPU; `queries` says whether query tensors are captured too. `l2_adapters` are
    LMCache's own configurations of what lies behind its memory; `arguments` and
    `environment` go to the server beyond the usual ones.
    """

    chunk_size_tokens: int
    l1_gib: int
    port: int = 0
    http_port: int = 0
    visible_devices: str | None = None
    queries: bool = False
    start_timeout_seconds: float = 180
    timeout_option: str = "start_timeout_seconds"
    l2_adapters: tuple[Mapping[str, Any], ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: CommonSpec) -> CacheServer:
        """Return the server that a run of `spec` needs, without anything behind its memory."""
        lmcache = spec.lmcache
        return cls(
            chunk_size_tokens=lmcache.chunk_size_tokens,
            l1_gib=lmcache.l1_gib,
            port=lmcache.port,
            http_port=lmcache.http_port,
            visible_devices=spec.vllm.visible_devices if spec.device == "cuda" else None,
            queries=True,
            start_timeout_seconds=lmcache.start_timeout_seconds,
            timeout_option=symbols_of("lmcache.start_timeout_seconds", spec.workflow),
        )


def server_command(
    server: CacheServer, python: str, endpoint: LMCacheEndpoint, segment: str
) -> list[str]:
    """Return the command that serves an L1 cache, and whatever lies behind it."""
    command = [
        python,
        *("-m", "lmcache.cli.main", "server"),
        *("--host", endpoint.host, "--port", str(endpoint.port)),
        *("--http-host", endpoint.host, "--http-port", str(endpoint.http_port)),
        *("--prometheus-port", str(endpoint.metrics_port)),
        *("--chunk-size", str(server.chunk_size_tokens)),
        *("--l1-size-gb", str(server.l1_gib), "--no-l1-use-lazy"),
        # Eviction would look like a miss; the watermark leaves it to a full pool.
        *("--eviction-policy", "LRU", "--eviction-trigger-watermark", "0.98"),
        *("--shm-name", segment),
        # The SDK moves bytes itself, vLLM lets the server move them: both.
        *("--supported-transfer-mode", "auto"),
        *("--max-workers", "2"),
    ]
    for adapter in server.l2_adapters:
        command += ["--l2-adapter", json.dumps(adapter, sort_keys=True)]
    command += server.arguments
    return [*command, "--enable", "transfer_query"] if server.queries else command


@contextmanager
def started_lmcache(
    server: CacheServer, *, python: str, log: Path, segment: str, run_id: str
) -> Iterator[StartedServer[LMCacheEndpoint]]:
    """Start an LMCache server for the length of a `with` block.

    Raises:
        EngineError: when it can't be started.
    """
    endpoint = LMCacheEndpoint(
        "127.0.0.1", server.port or free_port(), server.http_port or free_port(), free_port()
    )
    environment = {
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_LOG_LEVEL": "INFO",
        "DO_NOT_TRACK": "1",
        "PYTHONHASHSEED": "0",
        **server.environment,
    }
    if server.visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = server.visible_devices
    command = server_command(server, python, endpoint, segment)
    with EngineProcess(
        "LMCache server",
        command,
        env=environment,
        log=log,
        shared_memory=(segment,),
        run_id=run_id,
    ) as process:
        yield StartedServer(endpoint, process, server.start_timeout_seconds, server.timeout_option)
