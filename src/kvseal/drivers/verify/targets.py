# SPDX-License-Identifier: Apache-2.0
"""How each target's engine is built, and whether the one that came up is it.

Control: no connector and no caching. Native: vLLM's own prefix caching. A
connector: its class as the contract names it, native caching off, and a failed
load is an error, never a silent recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvseal.drivers.verify.preflight import Prepared
from kvseal.engines.lmcache import LMCacheEndpoint
from kvseal.engines.offline.protocol import EngineArguments
from kvseal.spec.contracts import LMCACHE, MP, NATIVE

LOAD_FAILURE_POLICY = "fail"
SCOPE_TAG = "lmcache.tag.kvseal_scope"
"""An in-process LMCache looks at no salt; a tag of the request is part of its keys."""


def kv_transfer(
    prepared: Prepared, target: str, server: LMCacheEndpoint | None
) -> dict[str, Any] | None:
    """Return vLLM's KV transfer configuration for `target`, None for control and native."""
    connector = prepared.request.connector
    if target not in (LMCACHE, MP) or connector is None:
        return None
    configuration: dict[str, Any] = {
        "kv_connector": connector.name,
        "kv_role": "kv_both",
        "kv_load_failure_policy": LOAD_FAILURE_POLICY,
    }
    if connector.module_path is not None:
        configuration["kv_connector_module_path"] = connector.module_path
    if server is not None:
        configuration["kv_connector_extra_config"] = {
            "lmcache.mp.host": f"tcp://{server.host}",
            "lmcache.mp.port": server.port,
        }
    return configuration


def engine_arguments(
    prepared: Prepared, target: str, server: LMCacheEndpoint | None
) -> EngineArguments:
    """Return what the engine of `target` is built from; all targets differ in their cache alone."""
    request = prepared.request
    return EngineArguments(
        model=str(prepared.model.path),
        tokenizer=str(prepared.tokenizer.path),
        dtype=request.dtype,
        block_size_tokens=prepared.geometry.block_tokens,
        max_model_len_tokens=prepared.geometry.max_model_len,
        gpu_memory_fraction=request.gpu_memory_utilization
        if prepared.ground.device == "cuda"
        else None,
        seed=request.seed,
        prefix_caching=target == NATIVE,
        kv_transfer=kv_transfer(prepared, target, server),
    )


def mismatches(
    prepared: Prepared, target: str, engine: Mapping[str, Any], arguments: EngineArguments
) -> Iterator[str]:
    """Yield how a started engine is not the one that was asked for; nothing when it is."""
    connector = prepared.request.connector if arguments.kv_transfer is not None else None
    wanted = None if connector is None else f"{connector.module}.{connector.name}"
    for side, loaded in engine["connector"].items():
        if loaded != wanted:
            yield f"the {side}'s connector is {loaded or 'none'}, not {wanted or 'none'}"
    for where, name, value in (
        ("cache", "enable_prefix_caching", arguments.prefix_caching),
        ("cache", "block_size", arguments.block_size_tokens),
        ("model", "max_model_len", arguments.max_model_len_tokens),
        ("model", "dtype", f"torch.{arguments.dtype}"),
    ):
        if engine[where][name] != value:
            yield f"{name} is {engine[where][name]}, not {value}"
    transfer = engine["kv_transfer_config"]
    if (transfer is None) != (arguments.kv_transfer is None):
        yield f"kv_transfer_config is {transfer}"
    elif transfer is not None and transfer["kv_load_failure_policy"] != LOAD_FAILURE_POLICY:
        yield f"kv_load_failure_policy is {transfer['kv_load_failure_policy']}"
    settings = prepared.settings
    if target == LMCACHE and settings is not None:
        effective = engine.get("lmcache", {}).get("effective", {})
        for name in ("chunk_size", *prepared.contract.settings):
            if effective.get(name) != settings.effective.get(name):
                yield f"LMCache runs with {name} {effective.get(name)!r}"
