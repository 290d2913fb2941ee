# SPDX-License-Identifier: Apache-2.0
"""LMCache inside one process: keys carry the variant a request names.

This is the engine that LMCache's other vLLM connector, the one without a
server, runs in vLLM's own process. A request's `lmcache.*` parameters reach its
token database already, so the name in every key is made there. A malformed
variant, and a model whose own name looks like one, is refused with ValueError.
Keys without a variant are those of stock.

Some backends and messages know a chunk by its hash alone. They never see a key
with a variant: it stays in the engine's memory, and, unless it is
request-local, on the local disk and in remote stores, which compare whole keys.
No event, controller message or peer tells of it. `lmcache_engine_adapter` has
what a request loads and stores.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_engine_adapter import ADAPTER, ADAPTER_ANCHORS
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import (
    after,
    before,
    branch,
    calling,
    first_in_body,
    function,
    instead,
    line,
    loop,
    swapping,
)

KEYS = "lmcache/utils.py"
TOKENS = "lmcache/v1/token_database.py"
ENGINE = "lmcache/v1/cache_engine.py"
MANAGER = "lmcache/v1/storage_backend/storage_manager.py"
CPU = "lmcache/v1/storage_backend/local_cpu_backend.py"
DISK = "lmcache/v1/storage_backend/local_disk_backend.py"
PEERS = "lmcache/v1/storage_backend/p2p_backend.py"
SYNC = "lmcache/v1/cache_controller/full_sync_sender.py"
MOONCAKE = "lmcache/v1/lookup_client/mooncake_lookup_client.py"

IMPORT = "from lmcache.v1 import transform_identity"
LOGGING = "from lmcache.logging import init_logger"
CHECK_KEY = """
# kvseal: what looks like the mark of a variant and is none is never ordinary.
transform_identity.split(self.model_name)
"""
PROPERTY = '''

@property
def variant(self) -> str:
    """The variant of transformed KV that this key names, "" for ordinary KV (kvseal)."""
    return transform_identity.split(self.model_name)[1]
'''
CHECK_MODEL = """
if metadata is not None:
    # kvseal: no model is served under a name that looks like a variant's.
    transform_identity.refuse_forged(metadata.model_name, "model name")
"""
KEY_NAME = (
    "transform_identity.decorate("
    "self.metadata.model_name, transform_identity.of_request(request_configs)[0])"
)
CLEAR_BY_TOKENS = """
if transform_identity.of_request(request_configs)[0] and (
    tokens is None or len(tokens) == 0
):
    # kvseal: without tokens all KV would go, whatever the request names.
    raise ValueError("a variant is cleared by its tokens, and none are given")
"""
MAY_SEE = '''

def _may_see(backend_name: str, keys: Sequence[CacheEngineKey]) -> bool:
    """Return whether a backend gets these keys: one with a variant not everywhere (kvseal)."""
    if backend_name == "LocalCPUBackend":
        return True
    variants = [key.variant for key in keys if key.variant]
    if not variants:
        return True
    # Other backends know some chunks by their hash alone; request-local stays in memory.
    return backend_name.partition("-")[0] in ("LocalDiskBackend", "RemoteBackend") and not any(
        variant.startswith("r") for variant in variants
    )
'''
SKIP = """
if not _may_see(backend_name, {keys}):
    continue
"""
NO_PEER = """
if any(key.variant for key in keys):
    # kvseal: a peer looks for chunks by their hash alone.
    raise ValueError("no variant is given to a peer or taken from one")
"""
NOT_SYNCED = """
# kvseal: the hash alone would announce ordinary KV.
return [key.chunk_hash for key in keys if not key.variant]
"""
NOT_IN_MOONCAKE = """
if transform_identity.of_request(request_configs)[0]:
    # kvseal: this client looks up without the request's parameters.
    return 0
"""

_KV_EVENTS = "self.kv_events_enabled"
_ORDINARY_EVENTS = swapping(_KV_EVENTS, f"{_KV_EVENTS} and not key.variant")
_SENDER = "self.batched_msg_sender is not None"
_ORDINARY_MESSAGES = swapping(_SENDER, f"{_SENDER} and not key.variant")
_PEER_KEYS = "keys = [CacheEngineKey.from_string(key) for key in msg.keys]"
_ACTIVE = "self.get_active_storage_backends"
_LOOPS = (  # function of StorageManager, loop target, over what, keys in it
    ("batched_put", "backend_name, backend", "self.storage_backends.items()", "keys"),
    ("get", "backend_name, backend", f"{_ACTIVE}(location)", "[key]"),
    ("get_non_blocking", "backend_name, backend", f"{_ACTIVE}(location)", "[key]"),
    ("batched_get", "backend_name, storage_backend", f"{_ACTIVE}(location)", "keys"),
    (
        "async_lookup_and_prefetch",
        "backend_name, backend",
        f"{_ACTIVE}(search_range=search_range)",
        "keys",
    ),
    ("contains", "backend_name, backend", f"{_ACTIVE}(search_range=search_range)", "[key]"),
    ("batched_contains", "backend_name, backend", f"{_ACTIVE}(search_range=search_range)", "keys"),
    ("get_block_mapping", "backend_name, backend", f"{_ACTIVE}()", "keys"),
    ("remove", "backend_name, backend", "self.storage_backends.items()", "[key]"),
    ("batched_remove", "backend_name, backend", "self.storage_backends.items()", "keys"),
)

EDITS: dict[str, tuple[Anchor, ...]] = {
    KEYS: (
        line("", LOGGING, after(IMPORT)),
        function("CacheEngineKey", "__post_init__", ["self"], first_in_body(CHECK_KEY)),
        function("CacheEngineKey", "__hash__", ["self"], before(PROPERTY)),
    ),
    TOKENS: (
        line("", "from lmcache.v1.config import LMCacheEngineConfig", before(IMPORT)),
        line("TokenDatabase.__init__", "self.metadata = metadata", before(CHECK_MODEL)),
        calling(
            "TokenDatabase._make_key_by_hash",
            "CacheEngineKey",
            "return CacheEngineKey(self.metadata.model_name, …)",
            swapping("self.metadata.model_name", KEY_NAME),
        ),
    ),
    ENGINE: (
        line("", "from lmcache.v1.config import LMCacheEngineConfig", before(IMPORT)),
        branch("LMCacheEngine.store", _KV_EVENTS, _ORDINARY_EVENTS),
        branch(
            "LMCacheEngine.store_layer", f"{_KV_EVENTS} and tokens is not None", _ORDINARY_EVENTS
        ),
        function(
            "LMCacheEngine",
            "clear",
            ["self", "tokens", "locations", "request_configs"],
            first_in_body(CLEAR_BY_TOKENS),
        ),
    ),
    MANAGER: (
        line(
            "",
            "AsyncSerializer = Union[AsyncSingleSerializer, AsyncMultiSerializer]",
            after(MAY_SEE),
        ),
        *(
            loop(f"StorageManager.{name}", target, over, first_in_body(SKIP.format(keys=keys)))
            for name, target, over, keys in _LOOPS
        ),
    ),
    CPU: (
        branch("LocalCPUBackend.submit_put_task", _SENDER, _ORDINARY_MESSAGES),
        branch("LocalCPUBackend.remove", _SENDER, _ORDINARY_MESSAGES),
    ),
    DISK: (
        branch("LocalDiskBackend.insert_key", f"{_SENDER} and not has_stored", _ORDINARY_MESSAGES),
        branch("LocalDiskBackend.remove", _SENDER, _ORDINARY_MESSAGES),
    ),
    PEERS: tuple(
        line(f"P2PBackend._handle_batched_lookup_and_{what}", _PEER_KEYS, after(NO_PEER))
        for what in ("get", "put")
    ),
    SYNC: (
        line(
            "FullSyncSender._get_all_hot_cache_keys",
            "return [key.chunk_hash for key in keys]",
            instead(NOT_SYNCED),
        ),
    ),
    MOONCAKE: (
        line("", "from lmcache.utils import CacheEngineKey", after(IMPORT)),
        function(
            "MooncakeLookupClient",
            "lookup",
            ["self", "token_ids", "lookup_id", "request_configs"],
            first_in_body(NOT_IN_MOONCAKE),
        ),
    ),
    ADAPTER: ADAPTER_ANCHORS,
}


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made (see `Codemod.rewrite`)."""
    del distribution
    return {
        path: rewrite_source(path, sources[path], anchors, absent=("variant",))
        for path, anchors in EDITS.items()
    }


CODEMOD = Codemod(
    name="lmcache_engine_variant",
    summary="LMCache inside vLLM's process uses the variant a request names for all of its keys",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=tuple(EDITS),
    rewrite=rewrite,
)
