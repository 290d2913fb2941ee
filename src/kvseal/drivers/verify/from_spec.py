# SPDX-License-Identifier: Apache-2.0
"""The request that a run spec of the workflow kv-reuse stands for.

A run spec has no file of LMCache settings: for a connector inside the engine
they are written here, from the spec's chunk and memory size, into the work
folder. A fixture's file was put there by the role kvseal_node. Called by
`kvseal verify --spec`.
"""

from __future__ import annotations

from pathlib import Path

from kvseal import store
from kvseal.models.resolve import resolve_model
from kvseal.spec.contracts import IN_PROCESS
from kvseal.spec.runspec import VerifySpec
from kvseal.spec.verify_request import VerifyRequest

SETTINGS = "lmcache.yaml"
FIXTURE = "fixture.json"


def request_of(spec: VerifySpec) -> VerifyRequest:
    """Return the request, with the model prepared where it comes out of a package.

    Raises:
        OptionError, PrerequisiteError: the model can't be had.
    """
    verify, vllm, lmcache = spec.verify, spec.vllm, spec.lmcache
    in_process = verify.connector == IN_PROCESS.name
    name, revision = spec.model.name, spec.model.revision
    if spec.model.source != "hub":
        model = resolve_model(spec)
        name, revision = str(model.path), ""
    return VerifyRequest(
        model=name,
        model_revision=revision,
        tokenizer=name,
        tokenizer_revision=revision,
        kv_connector=verify.connector,
        contract=verify.contract,
        lmcache_config=_settings(spec) if in_process else None,
        compare_native=verify.compare_native,
        native_prefix_caching=None,
        fixture=_fixture(spec),
        suite=verify.suite,
        prompt_format=verify.prompt_format or None,
        reuse_counts=verify.reuse_counts,
        max_tokens=verify.max_tokens,
        seed=verify.seed,
        dtype=vllm.dtype,
        gpu_memory_utilization=vllm.gpu_memory_percent / 100,
        max_model_len=vllm.max_model_len_tokens,
        block_size=vllm.block_size_tokens,
        chunk_size=lmcache.chunk_size_tokens,
        tenant=verify.tenant,
        cache_gib=lmcache.l1_gib,
        cpu_kv_gib=vllm.cpu_kv_gib,
        engine_start_seconds=vllm.start_timeout_seconds,
        server_start_seconds=lmcache.start_timeout_seconds,
        server_port=lmcache.port,
        server_http_port=lmcache.http_port,
        accepted_deviations=verify.accept_deviations,
        visible_devices=vllm.visible_devices if spec.device == "cuda" else None,
    )


def _fixture(spec: VerifySpec) -> Path | None:
    """Where this machine has the fixture's file; a name stays a name."""
    named = spec.verify.fixture
    if named.startswith("/"):
        return Path(spec.roots.work) / FIXTURE
    return Path(named) if named else None


def _settings(spec: VerifySpec) -> Path:
    path = Path(spec.roots.work) / SETTINGS
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(
        path,
        f"chunk_size: {spec.lmcache.chunk_size_tokens}\n"
        f"local_cpu: true\nmax_local_cpu_size: {spec.lmcache.l1_gib}\n",
    )
    return path
