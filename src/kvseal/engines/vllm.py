# SPDX-License-Identifier: Apache-2.0
"""Start and stop one vLLM server; the only module that knows vLLM's flags.

Prefix caching of vLLM's own is off unless asked for, so every reused token comes from
LMCache, and CUDA graphs are off, since a replayed graph does not run the Python code
that hands query tensors to the connector. The server listens on loopback only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from kvseal.engines.completions import CompletionClient
from kvseal.engines.lmcache import LMCacheEndpoint
from kvseal.engines.server import StartedServer
from kvseal.engines.vllm_environment import engine_environment
from kvseal.process import EngineProcess, free_port
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec

SERVED_MODEL = "model"
"""Name under which vLLM serves whichever model the spec names."""

CONNECTOR_MODULE = "lmcache.integration.vllm.lmcache_mp_connector"
"""LMCache's own connector: the copy inside vLLM 0.28.0 can't start (docs/upstream-notes.md)."""


@dataclass(frozen=True)
class VLLMEndpoint:
    """Where a running vLLM server can be reached."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Base URL of the OpenAI-compatible API."""
        return f"http://{self.host}:{self.port}"

    def client(self, watch: Callable[[], None]) -> CompletionClient:
        """A client for greedy completions; `watch` as in CompletionClient."""
        return CompletionClient(self.url, SERVED_MODEL, watch)

    def ready(self) -> bool:
        """True once the server answers its health check with success."""
        try:
            return requests.get(f"{self.url}/health", timeout=5).ok
        except requests.RequestException:
            return False


def serve_command(
    spec: CommonSpec,
    python: str,
    model: Path,
    port: int,
    connector: Mapping[str, object] | None,
    *,
    seed: int = 0,
    native_prefix_caching: bool = False,
) -> list[str]:
    """Return the command that serves `model`; `connector` None means no KV transfer at all."""
    vllm = spec.vllm
    command = [
        python,
        *("-m", "vllm.entrypoints.cli.main", "serve", str(model)),
        *("--served-model-name", SERVED_MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", vllm.dtype),
        *("--block-size", str(vllm.block_size_tokens)),
        *("--max-model-len", str(vllm.max_model_len_tokens)),
        # One prefill is one step: query tensors are captured only for tokens
        # that run in the step which completes their chunk.
        *("--max-num-batched-tokens", str(vllm.max_model_len_tokens)),
        *("--seed", str(seed)),
        "--enforce-eager",
        f"--{'' if native_prefix_caching else 'no-'}enable-prefix-caching",
        "--enable-prompt-tokens-details",
    ]
    if spec.device == "cuda":
        command += ["--gpu-memory-utilization", f"{vllm.gpu_memory_percent / 100:.2f}"]
    if connector is not None:
        command += ["--kv-transfer-config", json.dumps(connector, sort_keys=True)]
    return command


def serve_environment(spec: CommonSpec, *, shared_cores: bool = False) -> dict[str, str]:
    """Return the variables that vLLM is started with, beyond the inherited ones.

    `shared_cores`: another engine computes on the same cores at the same time.
    """
    environment = engine_environment(
        spec.device,
        cpu_kv_gib=spec.vllm.cpu_kv_gib,
        visible_devices=spec.vllm.visible_devices,
    )
    if shared_cores and spec.device == "cpu":
        # A thread that waits for its team by spinning keeps the other engine off its core.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    return environment


def lmcache_connector(
    lmcache: LMCacheEndpoint, *, heartbeat_seconds: float | None = None
) -> dict[str, object]:
    """Return the kv-transfer configuration that joins vLLM to LMCache's server.

    `heartbeat_seconds` is how often vLLM looks whether the server was started again,
    LMCache's own 10 s where None.
    """
    heartbeat = (
        {} if heartbeat_seconds is None else {"lmcache.mp.heartbeat_interval": heartbeat_seconds}
    )
    return {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {
            "lmcache.mp.host": f"tcp://{lmcache.host}",
            "lmcache.mp.port": lmcache.port,
            "lmcache.mp.transfer_intermediate_tensors": True,
            **heartbeat,
        },
    }


@contextmanager
def started_vllm(
    spec: CommonSpec,
    *,
    python: str,
    model: Path,
    log: Path,
    lmcache: LMCacheEndpoint | None,
    run_id: str,
    seed: int = 0,
    native_prefix_caching: bool = False,
    heartbeat_seconds: float | None = None,
    shared_cores: bool = False,
) -> Iterator[StartedServer[VLLMEndpoint]]:
    """Start a vLLM server for the length of a `with` block.

    `lmcache` None means no KV transfer at all; `heartbeat_seconds` as in `lmcache_connector`,
    `shared_cores` as in `serve_environment`.

    Raises:
        EngineError: when it can't be started.
    """
    endpoint = VLLMEndpoint("127.0.0.1", spec.vllm.port or free_port())
    connector = (
        None if lmcache is None else lmcache_connector(lmcache, heartbeat_seconds=heartbeat_seconds)
    )
    command = serve_command(
        spec,
        python,
        model,
        endpoint.port,
        connector,
        seed=seed,
        native_prefix_caching=native_prefix_caching,
    )
    environment = serve_environment(spec, shared_cores=shared_cores)
    with EngineProcess("vLLM", command, env=environment, log=log, run_id=run_id) as process:
        yield StartedServer(
            endpoint,
            process,
            spec.vllm.start_timeout_seconds,
            symbols_of("vllm.start_timeout_seconds", spec.workflow),
        )
