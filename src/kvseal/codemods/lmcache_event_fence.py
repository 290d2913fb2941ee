# SPDX-License-Identifier: Apache-2.0
"""LMCache: nobody learns from a variant's entries which KV belongs to which tokens.

Several parts of LMCache tell others, by tokens or by their bare chunk hash, what
is cached: token bindings on the event bus, what the coordinator's directory and
blend index make of them, the KV events of worker and server, and the
fingerprints of blending. All of them mean ordinary KV. Entries that carry a
variant are left out: no bindings, no stamps, no KV events, no fingerprints; and
a blend request that names a variant is refused. What the coordinator's directory
does is in `lmcache_directory_fence.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_directory_fence import directory_anchors
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, branch, first_in_body, function, instead, line

TRANSFER = "lmcache/v1/multiprocess/modules/lmcache_driven_transfer.py"
EVENTS = "lmcache/v1/mp_coordinator/cache_events.py"
BLEND = "lmcache/v1/multiprocess/modules/blend.py"
BLEND_V3 = "lmcache/v1/multiprocess/modules/blend_v3.py"
BLEND_STORE = "lmcache/v1/multiprocess/modules/blend/store.py"
BLEND_LOOKUP = "lmcache/v1/multiprocess/modules/blend/lookup.py"
BLEND_RETRIEVE = "lmcache/v1/multiprocess/modules/blend/retrieve.py"
BLEND_MODULE = "lmcache/v1/multiprocess/modules/blend/module.py"
KV_EVENTS = "lmcache/v1/multiprocess/modules/kv_events.py"
ADAPTER = "lmcache/integration/vllm/vllm_multi_process_adapter.py"

IMPORT = """
from lmcache.v1 import transform_identity
"""
LOGGING = "from lmcache.logging import init_logger"

NO_BINDINGS = """
if transform_identity.split(key.model_name)[1]:
    # kvseal: transformed KV is not what these tokens usually mean.
    return
"""
NO_STAMP = """
# kvseal: the hash alone may be bound by ordinary KV of the same tokens.
binding = (
    _NO_BINDING
    if transform_identity.split(key.model_name)[1]
    else self._token_bindings.get(key.chunk_hash, _NO_BINDING)
)
"""
NO_FINGERPRINTS = """
if transform_identity.split(key.model_name)[1]:
    # kvseal: a fingerprint would offer transformed KV for ordinary text.
    return result
"""
REFUSE_BLEND = """
if transform_identity.split(key.model_name)[1]:
    # kvseal: blending mixes KV by text, a variant is exact.
    raise ValueError(f"blending can't serve a variant: {key.model_name!r}")
"""
NO_WORKER_EVENTS = """
if transform_identity.split(key.model_name)[1]:
    # kvseal: an event without the variant would announce ordinary KV.
    return []
"""
NO_SERVER_EVENTS = """
# kvseal: the record has no variant, so it would announce ordinary KV.
keys: list[ObjectKey] = [
    key
    for key in event.metadata["keys"]
    if not transform_identity.split(key.model_name)[1]
]
"""

_TRANSFER = (
    line("", LOGGING, after(IMPORT)),
    function(
        "LMCacheDrivenTransferModule",
        "_publish_token_bindings",
        ("self", "key", "obj_keys"),
        first_in_body(NO_BINDINGS),
    ),
)
_EVENTS = (
    line("", LOGGING, after(IMPORT)),
    line(
        "CacheEventSubscriber._store_entry",
        "binding = self._token_bindings.get(key.chunk_hash, _NO_BINDING)",
        instead(NO_STAMP),
    ),
)


def _fingerprints(scope: str) -> Anchor:
    return branch(f"{scope}.store", "key.worker_id not in (0, None)", after(NO_FINGERPRINTS))


def _refused(scope: str, name: str, *parameters: str) -> Anchor:
    return function(scope, name, ("self", "key", *parameters), first_in_body(REFUSE_BLEND))


_RETRIEVE = ("instance_id", "event_ipc_handle")
_OLD_BLEND: dict[str, tuple[Anchor, ...]] = {
    BLEND: (
        line("", LOGGING, after(IMPORT)),
        _refused("BlendModule", "cb_lookup_pre_computed"),
        _refused("BlendModule", "cb_store_pre_computed", "offset", *_RETRIEVE),
        _refused(
            "BlendModule", "cb_retrieve_pre_computed", "cb_match_result", "offset", *_RETRIEVE
        ),
        _refused("BlendModule", "cb_store_final", "offset", *_RETRIEVE),
    ),
    BLEND_V3: (
        line("", LOGGING, after(IMPORT)),
        _fingerprints("BlendV3Module"),
        _refused("BlendV3Module", "cb_unified_lookup", "tp_size"),
        _refused(
            "BlendV3Module",
            "cb_retrieve_pre_computed",
            *("cb_match_result", "gpu_block_ids", *_RETRIEVE),
        ),
    ),
}
_NEW_BLEND: dict[str, tuple[Anchor, ...]] = {
    BLEND_STORE: (line("", LOGGING, after(IMPORT)), _fingerprints("StoreMixin")),
    BLEND_LOOKUP: (
        line("", LOGGING, after(IMPORT)),
        _refused("LookupMixin", "cb_unified_lookup", "tp_size"),
    ),
    BLEND_RETRIEVE: (
        line("", LOGGING, after(IMPORT)),
        _refused(
            "RetrieveMixin",
            "cb_retrieve_pre_computed",
            *("cb_match_result", "gpu_block_ids", *_RETRIEVE),
        ),
    ),
}
_NEWEST: dict[str, tuple[Anchor, ...]] = {
    BLEND_MODULE: (
        line("", LOGGING, after(IMPORT)),
        _refused("BlendModule", "cb_reorder_plan", "keep_prefix", "budget_ms"),
    ),
    KV_EVENTS: (
        line("", "from lmcache.v1.distributed.api import ObjectKey", after(IMPORT)),
        line(
            "KVEventModule._record_kv_event",
            'keys: list[ObjectKey] = event.metadata["keys"]',
            instead(NO_SERVER_EVENTS),
        ),
    ),
    ADAPTER: (
        line("", "from lmcache.integration.vllm.experimental import dispatch", after(IMPORT)),
        function(
            "LMCacheMPWorkerAdapter",
            "_build_store_kv_events",
            ("self", "key"),
            first_in_body(NO_WORKER_EVENTS),
        ),
    ),
}
_OF_VERSION: dict[str, dict[str, tuple[Anchor, ...]]] = {
    "0.5.4": _OLD_BLEND | directory_anchors("0.5.4"),
    "0.5.5": _NEW_BLEND | directory_anchors("0.5.5"),
    "0.5.6": _NEW_BLEND | _NEWEST | directory_anchors("0.5.6"),
}


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that this version has, with the edit made (see `Codemod.rewrite`)."""
    version = distribution.release
    anchors = {TRANSFER: _TRANSFER, EVENTS: _EVENTS} | _OF_VERSION[version]
    return {path: rewrite_source(path, sources[path], anchors[path]) for path in anchors}


CODEMOD = Codemod(
    name="lmcache_event_fence",
    summary="LMCache tells nobody which tokens a variant's entries belong to",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(TRANSFER, EVENTS),
    edited_in={version: tuple(anchors) for version, anchors in _OF_VERSION.items()},
    rewrite=rewrite,
)
