# SPDX-License-Identifier: Apache-2.0
"""Start and stop one LMCache server; the only module that knows its flags.

The L1 pool is a shared-memory segment with a name of this run's own, so that a
segment left by a killed server can be told from anyone else's and removed.
Every port is on loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from kvseal.engines.server import StartedServer
from kvseal.process import EngineProcess, free_port
from kvseal.spec.runspec import RunSpec


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


def server_command(
    spec: RunSpec, python: str, endpoint: LMCacheEndpoint, segment: str
) -> list[str]:
    """Return the command that serves the L1 cache of `spec`."""
    return [
        python,
        *("-m", "lmcache.cli.main", "server"),
        *("--host", endpoint.host, "--port", str(endpoint.port)),
        *("--http-host", endpoint.host, "--http-port", str(endpoint.http_port)),
        *("--prometheus-port", str(endpoint.metrics_port)),
        *("--chunk-size", str(spec.lmcache.chunk_size_tokens)),
        *("--l1-size-gb", str(spec.lmcache.l1_gib), "--no-l1-use-lazy"),
        # Eviction would look like a miss; the watermark leaves it to a full pool.
        *("--eviction-policy", "LRU", "--eviction-trigger-watermark", "0.98"),
        *("--shm-name", segment),
        # The SDK moves bytes itself, vLLM lets the server move them: both.
        *("--supported-transfer-mode", "auto"),
        *("--enable", "transfer_query"),
        *("--max-workers", "2"),
    ]


@contextmanager
def started_lmcache(
    spec: RunSpec, *, python: str, log: Path, segment: str, run_id: str
) -> Iterator[StartedServer[LMCacheEndpoint]]:
    """Start an LMCache server for the length of a `with` block.

    Raises:
        EngineError: when it can't be started.
    """
    lmcache = spec.lmcache
    endpoint = LMCacheEndpoint(
        "127.0.0.1", lmcache.port or free_port(), lmcache.http_port or free_port(), free_port()
    )
    environment = {
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_LOG_LEVEL": "INFO",
        "DO_NOT_TRACK": "1",
        "PYTHONHASHSEED": "0",
    }
    if spec.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = spec.vllm.visible_devices
    command = server_command(spec, python, endpoint, segment)
    with EngineProcess(
        "LMCache server",
        command,
        env=environment,
        log=log,
        shared_memory=(segment,),
        run_id=run_id,
    ) as process:
        yield StartedServer(
            endpoint,
            process,
            lmcache.start_timeout_seconds,
            "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_LMCACHE_START_TIMEOUT",
        )
