# SPDX-License-Identifier: Apache-2.0
"""LMCache's connector for vLLM: a request that names a variant uses that variant and nothing else.

The tracker of a request reads and checks the variant (`kv_transfer_params`),
and every key made for the request carries it: lookup, lock release, retrieve,
store, captured queries. Chunks that the engine computes on top of loaded
variant KV are stored under the same variant.

Nothing is loaded or stored for a request whose variant is malformed or can't
be served here; raising in vLLM's scheduler would end the engine, so the reason
is logged. `vllm_block_hash_variant` refuses such a request earlier, with an
error of its own, and asks `admit_transform_variant` for that.

A request that does not find its variant, or less of it than
`lmcache.variant_tokens` says, or whose load failed, is computed from its
tokens. That KV is ordinary, so it is not stored under the variant's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods import lmcache_connector_keys as keys
from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import (
    after,
    before,
    branch,
    calling,
    first_in_body,
    function,
    line,
    with_argument,
)

CONNECTOR = "lmcache/integration/vllm/lmcache_mp_connector.py"
METADATA = "lmcache/integration/vllm/lmcache_mp_metadata.py"

TRACKER = """
# kvseal: a malformed variant is refused, never taken for ordinary.
self.variant: str = ""
self.variant_tokens: int = 0
self.variant_found: bool = False
self.variant_refused: bool = False
try:
    self.variant, self.variant_tokens = transform_identity.of_request(
        getattr(request, "kv_transfer_params", None), request.cache_salt
    )
except ValueError:
    self.variant_refused = True
"""
NO_STORE = """
# kvseal: what was not computed on KV of the variant is not the variant.
if tracker.variant_refused or (tracker.variant and not tracker.variant_found):
    return None
"""
NO_RETRIEVE = """
if tracker.variant_refused:
    return None
"""
METHODS = '''

def admit_transform_variant(self, request: "Request") -> None:
    """Raise ValueError where the variant a request names can't be served (kvseal)."""
    # vLLM asks before it schedules such a request, _admit_tracker once more.
    variant, _ = transform_identity.of_request(
        getattr(request, "kv_transfer_params", None), request.cache_salt
    )
    if not variant:
        return
    if (
        self._vllm_config.cache_config.enable_prefix_caching
        and getattr(request, "transform_variant", "") != variant
    ):
        raise ValueError(
            f"variant {variant!r} refused: vLLM's prefix cache does not keep variants apart"
        )
    require = getattr(self.scheduler_adapter, "require_transform_identity", None)
    if require is None:
        raise ValueError(
            f"variant {variant!r} refused: this connector does not ask servers for "
            f"{transform_identity.CAPABILITY}"
        )
    require(variant)

def _admit_tracker(
    self, request: "Request", tracker: LMCacheMPRequestTracker
) -> None:
    """Set `variant_refused` where nothing may be loaded or stored (kvseal)."""
    if not (tracker.variant or tracker.variant_refused):
        return
    try:
        self.admit_transform_variant(request)
    except Exception as error:
        # Whatever it is: raised in the scheduler it would end the engine.
        tracker.variant_refused = True
        logger.error(
            "Request %s: nothing is loaded or stored: %s", request.request_id, error
        )

def _found_whole_variant(self, tracker: LMCacheMPRequestTracker, found: int) -> bool:
    """Note whether a request's variant was found; False: less than all of it (kvseal)."""
    tokens_per_chunk = self.scheduler_adapter.lmcache_tokens_per_chunk
    wanted = tracker.variant_tokens // tokens_per_chunk * tokens_per_chunk
    tracker.variant_found = found > 0 and found >= wanted
    if tracker.variant_found or not tracker.variant:
        return True
    logger.warning(
        "Request %s: %d of %d tokens of variant %s found, its tokens are computed "
        "and nothing is stored",
        tracker.request_id,
        found,
        wanted,
        tracker.variant,
    )
    return found == 0

def _note_failed_variant_loads(self, connector_output: KVConnectorOutput) -> None:
    """Stop storing for requests whose variant KV did not arrive (kvseal)."""
    failed = getattr(connector_output, "invalid_block_ids", None)
    if not failed:
        return
    for tracker in self.request_trackers.values():
        if tracker.variant and any(
            not failed.isdisjoint(blocks)
            for blocks in tracker.allocated_block_ids.values()
        ):
            tracker.variant_found = False
'''
ADMIT = "self._admit_tracker(request, new_tracker)"
REFUSED = "if tracker.variant_refused:\n    return"
FOUND = """
if tracker.variant and not self._found_whole_variant(tracker, ret):
    # kvseal: a part of the variant with computed chunks behind it is another KV.
    self.scheduler_adapter.free_lookup_locks(
        token_ids=tracker.get_token_ids(),
        start=0,
        end=ret,
        request_id=request.request_id,
        cache_salt=tracker.cache_salt,
        variant=tracker.variant,
    )
    tracker.variant_refused = True
    return 0, False
"""
BYPASSED = "tracker.variant_found = False"
PREEMPTED = """
if tracker.variant and request.status == RequestStatus.PREEMPTED:
    # kvseal: this LMCache loads nothing for a request that was preempted.
    logger.warning(
        "Request %s was preempted: the rest of its answer is computed from its "
        "tokens and not on variant %s; nothing of it is stored",
        request.request_id,
        tracker.variant,
    )
"""

_CLASS = "LMCacheMPConnector"
_VARIANT = "variant=tracker.variant"


def _metadata_anchors(version: str) -> tuple[Anchor, ...]:
    given = ["tracker", "lmcache_tokens_per_chunk", "group_tokens_per_block"]
    decode = ["save_decode_cache"] if version == "0.5.6" else []
    scope = "LMCacheMPRequestMetadata"
    made = "op = LoadStoreOp(…)"
    with_variant = with_argument("LoadStoreOp", _VARIANT)
    return (
        line(
            "",
            "from lmcache.v1.multiprocess.group_view import slice_block_ids_per_group",
            before(keys.IMPORT),
        ),
        line(
            "LMCacheMPRequestTracker.__init__",
            'self.cache_salt: str = request.cache_salt or ""',
            after(TRACKER),
        ),
        function(scope, "GetStoreMetadata", [*given, *decode], first_in_body(NO_STORE)),
        function(scope, "GetRetrieveMetadata", given, first_in_body(NO_RETRIEVE)),
        calling(f"{scope}.GetStoreMetadata", "LoadStoreOp", made, with_variant),
        calling(f"{scope}.GetRetrieveMetadata", "LoadStoreOp", made, with_variant),
    )


def _connector_anchors(version: str) -> tuple[Anchor, ...]:
    matched, new, allocated = (
        f"{_CLASS}.{name}"
        for name in ("get_num_new_matched_tokens", "on_new_request", "update_state_after_alloc")
    )
    tracker = "tracker = self._get_or_create_request_tracker(request)"
    lookup, free = "maybe_submit_lookup_request", "free_lookup_locks"
    preempted = branch(matched, "request.status == RequestStatus.PREEMPTED", before(PREEMPTED))
    bypass = line(matched, "tracker.state = LMCacheMPRequestState.BYPASS_LMCACHE", after(BYPASSED))
    return (
        line(
            "",
            "from lmcache.utils import init_logger as lmcache_init_logger",
            after(keys.IMPORT),
        ),
        line(
            f"{_CLASS}._get_or_create_request_tracker",
            "self.request_trackers[request_id] = new_tracker",
            after(ADMIT),
        ),
        line(matched, tracker, after(f"{REFUSED} 0, False")),
        line(new, tracker, after(REFUSED)),
        calling(matched, lookup, f"{lookup}(…)", with_argument(lookup, _VARIANT)),
        calling(new, lookup, f"{lookup}(…)", with_argument(lookup, _VARIANT)),
        branch(matched, "ret == 0", before(FOUND)),
        calling(allocated, free, f"{free}(…)", with_argument(free, _VARIANT)),
        function(
            _CLASS,
            "update_connector_output",
            ["self", "connector_output"],
            first_in_body("self._note_failed_variant_loads(connector_output)"),
        ),
        function(_CLASS, "_get_request_tracker", ["self", "request_id"], before(METHODS)),
        *(() if version == "0.5.6" else (preempted,)),
        *(() if version == "0.5.4" else (bypass,)),
    )


def _edits(version: str) -> dict[str, tuple[Anchor, ...]]:
    edits = {
        CONNECTOR: _connector_anchors(version),
        METADATA: _metadata_anchors(version),
        keys.ADAPTER: keys.adapter_anchors(version),
        keys.QUERY_RING: keys.QUERY_RING_ANCHORS,
    }
    if version == "0.5.6":
        edits[keys.LAZY_OFFLOAD] = keys.LAZY_OFFLOAD_ANCHORS
    else:
        edits |= dict.fromkeys(keys.LEGACY, keys.LEGACY_ANCHORS)
    return edits


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made (see `Codemod.rewrite`)."""
    edits = _edits(distribution.release)
    absent = ("variant",)
    return {
        path: rewrite_source(path, sources[path], anchors, absent=absent)
        for path, anchors in edits.items()
    }


CODEMOD = Codemod(
    name="lmcache_connector_variant",
    summary="LMCache's vLLM connector uses the variant a request names for all of its keys",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(CONNECTOR, METADATA, keys.ADAPTER, keys.QUERY_RING),
    edited_in={
        "0.5.4": keys.LEGACY,
        "0.5.5": keys.LEGACY,
        "0.5.6": (keys.LAZY_OFFLOAD,),
    },
    rewrite=rewrite,
)
