# SPDX-License-Identifier: Apache-2.0
"""What each target's engine is built from, and what of a started one gives it away."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kvseal.drivers.verify.ground import Ground
from kvseal.drivers.verify.targets import engine_arguments, kv_transfer, mismatches
from kvseal.engines.lmcache import LMCacheEndpoint
from kvseal.models.directory import ModelDirectory

ENDPOINT = LMCacheEndpoint("127.0.0.1", 7001, 7002, 7003)
IN_PROCESS = {
    "kv_connector": "LMCacheConnectorV1",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "fail",
}
MODULE = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"


def test_control_and_native_have_no_connector(stage: Any) -> None:
    prepared = stage.lmcache(compare_native=True)
    for target in ("control", "native"):
        assert kv_transfer(prepared, target, None) is None
    assert kv_transfer(stage.prepared(), "native", None) is None


def test_an_in_process_connector(stage: Any) -> None:
    assert kv_transfer(stage.lmcache(), "lmcache", None) == IN_PROCESS


def test_a_server_s_connector(stage: Any) -> None:
    assert kv_transfer(stage.mp(), "mp", ENDPOINT) == {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1",
            "lmcache.mp.port": 7001,
        },
    }


def test_all_targets_differ_in_their_cache_alone(stage: Any) -> None:
    prepared = stage.lmcache(compare_native=True, seed=6)
    made = {
        target: dataclasses.asdict(engine_arguments(prepared, target, None))
        for target in ("control", "lmcache", "native")
    }
    cache = {
        target: (entry.pop("prefix_caching"), entry.pop("kv_transfer"))
        for target, entry in made.items()
    }
    assert cache == {
        "control": (False, None),
        "lmcache": (False, IN_PROCESS),
        "native": (True, None),
    }
    assert made["control"] == made["lmcache"] == made["native"] == {
        "model": "/models/tiny",
        "tokenizer": "/models/tiny",
        "dtype": "float32",
        "block_size_tokens": 16,
        "max_model_len_tokens": 4096,
        "gpu_memory_fraction": None,
        "seed": 6,
    }  # fmt: skip


def test_model_and_tokenizer_are_their_directories(stage: Any) -> None:
    tokenizer = ModelDirectory(Path("/t"), "t", "", {}, changed=False)
    prepared = dataclasses.replace(stage.prepared(), tokenizer=tokenizer)
    made = engine_arguments(prepared, "native", None)
    assert (made.model, made.tokenizer) == ("/models/tiny", "/t")


@pytest.mark.parametrize(("device", "share"), [("cpu", None), ("cuda", 0.6)])
def test_a_share_of_gpu_memory_is_for_a_gpu(stage: Any, device: str, share: Any) -> None:
    prepared = dataclasses.replace(
        stage.prepared(gpu_memory_utilization=0.6), ground=Ground(device, {}, [], [])
    )
    assert engine_arguments(prepared, "native", None).gpu_memory_fraction == share


def engine(stage: Any, target: str = "lmcache") -> tuple[Any, dict[str, Any], Any]:
    """Return a prepared run, the description of the right engine for it, and its arguments."""
    prepared = {"lmcache": stage.lmcache, "mp": stage.mp}.get(target, stage.prepared)()
    endpoint = ENDPOINT if target == "mp" else None
    arguments = engine_arguments(prepared, target, endpoint)
    stage.verify(stage.first(prepared, 1))
    started = {event["target"]: event["engine"] for event in stage.events("target_started")}
    return prepared, started[target], arguments


@pytest.mark.parametrize("target", ["control", "native", "lmcache", "mp"])
def test_the_right_engine(stage: Any, target: str) -> None:
    prepared, described, arguments = engine(stage, target)
    assert list(mismatches(prepared, target, described, arguments)) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("connector", "worker"), None, f"the worker's connector is none, not {MODULE}."),
        (("connector", "scheduler"), "a.B", "the scheduler's connector is a.B, not "),
        (
            ("connector", "worker"),
            "lmcache.LMCacheConnectorV1",
            "the worker's connector is lmcache.LMCacheConnectorV1, not ",
        ),
        (("cache", "enable_prefix_caching"), True, "enable_prefix_caching is True, not False"),
        (("cache", "block_size"), 32, "block_size is 32, not 16"),
        (("model", "max_model_len"), 2048, "max_model_len is 2048, not 4096"),
        (("model", "dtype"), "torch.bfloat16", "dtype is torch.bfloat16, not torch.float32"),
        (("kv_transfer_config",), None, "kv_transfer_config is None"),
        (
            ("kv_transfer_config", "kv_load_failure_policy"),
            "recompute",
            "kv_load_failure_policy is recompute",
        ),
        (("lmcache", "effective", "chunk_size"), 256, "LMCache runs with chunk_size 256"),
        (
            ("lmcache", "effective", "enable_blending"),
            True,
            "LMCache runs with enable_blending True",
        ),
        (
            ("lmcache", "effective", "remote_config_url"),
            "http://x",
            "LMCache runs with remote_config_url 'http://x'",
        ),
        (
            ("lmcache", "effective", "min_retrieve_tokens"),
            512,
            "LMCache runs with min_retrieve_tokens 512",
        ),
    ],
)
def test_an_engine_that_is_another(
    stage: Any, path: tuple[str, ...], value: Any, says: str
) -> None:
    prepared, described, arguments = engine(stage)
    at = described
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    (found,) = mismatches(prepared, "lmcache", described, arguments)
    assert found.startswith(says)


def test_a_connector_lost_altogether_is_no_error_of_ours(stage: Any) -> None:
    prepared, described, arguments = engine(stage)
    described["kv_transfer_config"] = None
    described["connector"] = {"scheduler": None, "worker": None}
    del described["lmcache"]
    found = list(mismatches(prepared, "lmcache", described, arguments))
    assert "kv_transfer_config is None" in found
    assert "LMCache runs with chunk_size None" in found


@pytest.mark.parametrize("target", ["control", "native"])
def test_a_connector_where_none_belongs(stage: Any, target: str) -> None:
    prepared, described, arguments = engine(stage, target)
    described["connector"]["worker"] = "a.B"
    described["kv_transfer_config"] = IN_PROCESS
    assert list(mismatches(prepared, target, described, arguments)) == [
        "the worker's connector is a.B, not none",
        f"kv_transfer_config is {IN_PROCESS}",
    ]


def test_native_caching_that_is_off(stage: Any) -> None:
    prepared, described, arguments = engine(stage, "native")
    described["cache"]["enable_prefix_caching"] = False
    assert list(mismatches(prepared, "native", described, arguments)) == [
        "enable_prefix_caching is False, not True"
    ]


def test_a_server_s_settings_are_not_an_in_process_lmcache_s(stage: Any) -> None:
    prepared, described, arguments = engine(stage, "mp")
    described["lmcache"]["effective"] = {"chunk_size": 1}
    assert list(mismatches(prepared, "mp", described, arguments)) == []
