# SPDX-License-Identifier: Apache-2.0
"""Where LMCache's connector makes keys: each gets the variant of its request.

The anchors of `lmcache_connector_variant` in the adapters that speak to the
server, the ring of captured queries, lazy offload, and the old connector
copies, which carry no variant and so do nothing for a request that names one.
"""

from __future__ import annotations

from kvseal.codemods.anchor import Anchor
from kvseal.codemods.syntax import (
    after,
    before,
    calling,
    first_in_body,
    function,
    instead,
    line,
    swapping,
    with_argument,
    with_parameter,
)

ADAPTER = "lmcache/integration/vllm/vllm_multi_process_adapter.py"
QUERY_RING = "lmcache/sdk/qringbuffer.py"
LAZY_OFFLOAD = "lmcache/integration/vllm/lazy_offload_manager.py"
LEGACY = tuple(
    f"lmcache/integration/vllm/lmcache_mp_connector_{version}.py" for version in ("0180", "0201")
)

IMPORT = "from lmcache.v1 import transform_identity"
PARAMETER = 'variant: str = ""'
REFUSE_NAME = 'transform_identity.refuse_forged(model_name, "model name")'
OP_FIELD = '''

variant: str = ""
"""The variant of transformed KV this operation is for (kvseal)."""
'''
OP_PROPERTY = "flat_block_ids"
LEGACY_NAMES_VARIANT = """
# kvseal: this copy can't carry a variant, so such a request is left to the engine.
try:
    named, _ = transform_identity.of_request(
        getattr(request, "kv_transfer_params", None), request.cache_salt
    )
except ValueError as error:
    named = str(error)
self.names_variant = bool(named)
if self.names_variant:
    logger.error(
        "Request %s: nothing is loaded or stored, this connector carries no variant (%s)",
        request.request_id,
        named,
    )
"""


def adapter_anchors(version: str) -> tuple[Anchor, ...]:
    """Return the anchors of the adapters in LMCache `version`."""
    configs = "" if version == "0.5.4" else ", request_configs"
    keys = {  # function → parameters it has
        "maybe_submit_lookup_request": ["self", "request_id", "token_ids", "cache_salt"],
        "free_lookup_locks": ["self", "token_ids", "start", "end", "request_id", "cache_salt"],
    }
    if configs:
        keys["maybe_submit_lookup_request"] += ["request_configs", "reserve_last_token"]
        keys["free_lookup_locks"] += ["request_configs"]
    if version == "0.5.5":
        keys["maybe_submit_lookup_request"].remove("reserve_last_token")
    scheduler, worker = "LMCacheMPSchedulerAdapter", "LMCacheMPWorkerAdapter"
    create = ["self", "token_ids", "start", "end", "request_id", "cache_salt"]
    create += ["request_configs"] if configs else []
    nothing = "None, None" + (", None" if configs else "")
    anchors = [
        line(
            "",
            "from lmcache.integration.vllm.experimental import dispatch",
            after(IMPORT),
        ),
        function("LoadStoreOp", OP_PROPERTY, ["self"], before(OP_FIELD)),
        line(
            f"{scheduler}.maybe_submit_lookup_request",
            f"self._lookup_params[request_id] = (token_ids, cache_salt{configs})",
            instead(f"self._lookup_params[request_id] = (token_ids, cache_salt{configs}, variant)"),
        ),
        line(
            f"{scheduler}._free_inconsistent_lookup_locks",
            f"token_ids_l, cs{configs} = self._lookup_params.pop(request_id, ({nothing}))",
            instead(
                f"token_ids_l, cs{configs}, variant = self._lookup_params.pop(\n"
                f'    request_id, ({nothing}, "")\n)'
            ),
        ),
        _create(f"{scheduler}._free_inconsistent_lookup_locks", "variant"),
        *(
            function(scheduler, name, given, with_parameter(PARAMETER))
            for name, given in keys.items()
        ),
        *(_create(f"{scheduler}.{name}", "variant") for name in keys),
        *(
            _create(f"{worker}.submit_{what}_request", "op.variant")
            for what in ("store", "retrieve")
        ),
    ]
    for adapter in (scheduler, worker):
        anchors += [
            line(f"{adapter}.__init__", "self.model_name = model_name", after(REFUSE_NAME)),
            function(adapter, "_create_key", create, with_parameter(PARAMETER)),
            calling(
                f"{adapter}._create_key",
                "IPCCacheServerKey",
                "return IPCCacheServerKey(model_name=self.model_name, …)",
                swapping(
                    "self.model_name", "transform_identity.decorate(self.model_name, variant)"
                ),
                arguments=["model_name=self.model_name"],
            ),
        ]
    return tuple(anchors)


def _create(scope: str, variant: str) -> Anchor:
    edit = with_argument("_create_key", f"variant={variant}")
    return calling(scope, "_create_key", "self._create_key(…)", edit)


QUERY_RING_ANCHORS = (
    line("", "from lmcache.utils import init_logger as lmcache_init_logger", after(IMPORT)),
    _create("QRingBufferAdapter.submit_q_store_request", "op.variant"),
    line(
        "QRingBufferAdapter.submit_q_store_request",
        "key = replace(key, model_name=self.q_model_name)",
        instead(
            "key = replace(\n"
            "    key,\n"
            "    model_name=transform_identity.decorate(self.q_model_name, op.variant),\n"
            ")"
        ),
    ),
)

LAZY_OFFLOAD_ANCHORS = (
    calling(
        "_coalesce_store_metadata",
        "LoadStoreOp",
        "merged_op = LoadStoreOp(…)",
        with_argument("LoadStoreOp", "variant=first.op.variant"),
    ),
)

LEGACY_ANCHORS = (
    calling("", "lmcache_init_logger", "logger = lmcache_init_logger(__name__)", before(IMPORT)),
    line(
        "LMCacheMPRequestTracker.__init__",
        "self.request_id = request.request_id",
        after(LEGACY_NAMES_VARIANT),
    ),
    function(
        "LMCacheMPRequestMetadata",
        "GetStoreMetadata",
        ["tracker", "blocks_in_chunk", "vllm_block_size"],
        first_in_body("if tracker.names_variant:\n    return None"),
    ),
    line(
        "LMCacheMPConnector.get_num_new_matched_tokens",
        "tracker = self._get_or_create_request_tracker(request)",
        after("if tracker.names_variant:\n    return 0, False"),
    ),
)
