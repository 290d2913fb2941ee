# SPDX-License-Identifier: Apache-2.0
"""What engines are started with: loopback only, no second cache, query capture on."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("requests")

from kvseal.engines import lmcache, vllm


def _builder() -> ModuleType:
    path = Path(__file__).parents[1] / "records" / "builder.py"
    spec = importlib.util.spec_from_file_location("builder", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_spec = _builder().make_spec
ENDPOINT = lmcache.LMCacheEndpoint("127.0.0.1", 5555, 8080, 9090)


def value(command: list[str], option: str) -> str:
    assert command.count(option) == 1, option
    return command[command.index(option) + 1]


def test_vllm_reuses_nothing_but_what_lmcache_hands_over() -> None:
    command = vllm.serve_command(
        make_spec(), "python", Path("/m"), 8000, vllm.lmcache_connector(ENDPOINT)
    )
    assert "--no-enable-prefix-caching" in command
    assert "--enforce-eager" in command
    assert value(command, "--host") == "127.0.0.1"
    assert '"kv_load_failure_policy": "fail"' in value(command, "--kv-transfer-config")
    assert "--gpu-memory-utilization" not in command


def test_a_prompt_is_prefilled_in_one_step() -> None:
    command = vllm.serve_command(make_spec(), "python", Path("/m"), 8000, None)
    assert value(command, "--max-num-batched-tokens") == value(command, "--max-model-len")
    assert "--kv-transfer-config" not in command


def test_gpu_share_and_devices_belong_to_the_nvidia_profile() -> None:
    spec = make_spec(vllm={"visible_devices": "1", "gpu_memory_percent": 35})
    cuda = vars(spec) | {"device": "cuda"}
    spec = type(spec)(**cuda)
    assert (
        value(vllm.serve_command(spec, "python", Path("/m"), 1, None), "--gpu-memory-utilization")
        == "0.35"
    )
    environment = vllm.serve_environment(spec)
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "LMCACHE_MP_TRANSFER_MODE" not in environment


def test_lmcache_listens_on_loopback_with_the_chunk_of_the_spec() -> None:
    spec = make_spec()
    command = lmcache.server_command(
        lmcache.CacheServer.of(spec), "python", ENDPOINT, "kvseal_segment_1"
    )
    assert value(command, "--host") == value(command, "--http-host") == "127.0.0.1"
    assert value(command, "--chunk-size") == str(spec.lmcache.chunk_size_tokens)
    assert value(command, "--shm-name") == "kvseal_segment_1"
    assert value(command, "--enable") == "transfer_query"


def test_a_matrix_asks_for_vllms_own_cache_and_a_tier_behind_the_memory() -> None:
    connector = vllm.lmcache_connector(ENDPOINT, heartbeat_seconds=1.0)
    command = vllm.serve_command(
        make_spec(), "python", Path("/m"), 1, connector, native_prefix_caching=True
    )
    assert "--enable-prefix-caching" in command
    assert '"lmcache.mp.heartbeat_interval": 1.0' in value(command, "--kv-transfer-config")
    server = dataclasses.replace(
        lmcache.CacheServer.of(make_spec()), l2_adapters=({"type": "fs", "base_path": "/d"},)
    )
    command = lmcache.server_command(server, "python", ENDPOINT, "segment")
    assert value(command, "--l2-adapter") == '{"base_path": "/d", "type": "fs"}'


def test_a_start_that_takes_too_long_names_the_symbol_of_its_own_workflow() -> None:
    option = lmcache.CacheServer.of(make_spec()).timeout_option
    assert option == "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_LMCACHE_START_TIMEOUT"
