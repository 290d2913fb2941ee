# SPDX-License-Identifier: Apache-2.0
"""What a vLLM request with a variant loads and stores where LMCache runs in vLLM's process.

The anchors of `lmcache_engine_variant` in the adapter. A variant is loaded
whole or not at all; what is computed from tokens because it was not found, or
because its load failed, is not stored. A refusal costs the request and not the
engine: nothing is looked up, loaded or stored for it, and the reason is logged.
vLLM, edited by `vllm_block_hash_variant`, refuses such a request earlier, with
an error of its own; `admit_transform_variant` is what it asks.

Refused are also requests whose tenant this engine could not keep apart, since
its keys know no cache salt, and whatever hands KV on in another way than by
keys: layerwise transfer, blending, disaggregated prefill.
"""

from __future__ import annotations

from kvseal.codemods.syntax import (
    after,
    before,
    branch,
    calling,
    first_in_body,
    function,
    line,
    loop,
    with_argument,
)

ADAPTER = "lmcache/integration/vllm/vllm_v1_adapter.py"

ASKED_BY_VLLM = """
# kvseal: the connector that vLLM knows is asked, whichever class it is.
parent.admit_transform_variant = self.admit_transform_variant
"""
STATE = """
# kvseal: request → whether the variant it names was found, whole.
self._variants_found: dict[str, bool] = {}
"""
FIELD = """

# kvseal: the request's KV is not, or not any more, that of the variant it names.
variant_lost: bool = False
"""
FAILED_LOAD = """
if (request.request_configs or {}).get(transform_identity.REQUEST_KEY):
    # kvseal: what is computed in its place is not the variant.
    request.variant_lost = True
"""
LOST = """
if request.variant_lost:
    # kvseal: not stored, whatever else says that all of a request must be.
    continue
"""
REFUSED = """
if self._refuses_variant(request):
    # kvseal: its tokens are computed.
    self.load_specs[req_id] = LoadSpec(num_computed_tokens, 0, False)
    return 0
"""
WHOLE = """
if not self._loads_variant(
    request,
    0
    if num_computed_tokens
    or below_min_retrieve
    or capped_lmcache_tokens < num_external_hit_tokens
    else num_external_hit_tokens,
):
    # kvseal: a part of the variant with computed tokens behind it is another KV.
    need_to_allocate = capped_lmcache_tokens = 0
"""
FORGET = "self._variants_found.pop(finished_req_id, None)"
TRACKED = """
# kvseal: only a variant that was looked up and found is stored.
request_tracker.variant_lost = not self._variants_found.get(
    request.req_id,
    (request_tracker.request_configs or {}).get(transform_identity.REQUEST_KEY, "")
    == "",
)
"""
ROLLED_BACK = """
if (
    req_id in self._variants_found
    and not preempted
    and num_current_tokens < len(request_tracker.token_ids)
):
    # kvseal: a load failed, or tokens were taken back.
    self._lose_variant(req_id)
"""
METHODS = '''

def admit_transform_variant(self, request: "Request") -> None:
    """Raise ValueError where the variant a request names can't be served (kvseal)."""
    # vLLM asks before it schedules such a request, _refuses_variant once more.
    params = getattr(request, "kv_transfer_params", None)
    salt = getattr(request, "cache_salt", None)
    variant, _ = transform_identity.of_request(params, salt)
    if not variant:
        return
    refusals = {
        "LMCache's keys in this process do not keep cache salts apart": salt,
        "vLLM's prefix cache does not keep variants apart": (
            self._vllm_config.cache_config.enable_prefix_caching
            and getattr(request, "transform_variant", "") != variant
        ),
        "disaggregated prefill hands KV on without it": (
            self.config.enable_pd
            or self.kv_role == "kv_producer"
            or "disagg_spec" in params
        ),
        "layerwise transfer and blending drop it": (
            self.config.use_layerwise or self.config.enable_blending
        ),
        "LMCACHE_TRANSFORM_SCOPES does not allow its scope": (
            variant[0] not in os.environ.get("LMCACHE_TRANSFORM_SCOPES", "rq")
        ),
    }
    for reason, applies in refusals.items():
        if applies:
            raise ValueError(f"variant {variant!r} refused: {reason}")

def _refuses_variant(self, request: "Request") -> bool:
    """Return whether nothing is loaded or stored for a request any more (kvseal)."""
    req_id = request.request_id
    if req_id not in self._variants_found:
        try:
            self.admit_transform_variant(request)
        except Exception as error:
            # Whatever it is: raised in the scheduler it would end the engine.
            logger.error("Request %s: nothing is loaded or stored: %s", req_id, error)
            self._lose_variant(req_id)
    return not self._variants_found.get(req_id, True)

def _loads_variant(self, request: "Request", tokens: int) -> bool:
    """Note whether `tokens` are all of the variant a request names, if any (kvseal)."""
    variant, wanted = transform_identity.of_request(
        getattr(request, "kv_transfer_params", None)
    )
    if not variant:
        return True
    wanted = wanted // self._lmcache_chunk_size * self._lmcache_chunk_size
    if tokens > 0 and tokens >= wanted:
        self._variants_found[request.request_id] = True
        return True
    logger.warning(
        "Request %s: %d of %d tokens of variant %s can be loaded, its tokens are "
        "computed and nothing is stored",
        request.request_id,
        tokens,
        wanted,
        variant,
    )
    self._lose_variant(request.request_id)
    return False

def _lose_variant(self, req_id: str) -> None:
    """Neither load nor store for a request from now on (kvseal)."""
    self._variants_found[req_id] = False
    if tracker := self._request_trackers.get(req_id):
        tracker.variant_lost = True
'''

_CLASS = "LMCacheConnectorV1Impl"
_MATCHED = f"{_CLASS}.get_num_new_matched_tokens"
_META = f"{_CLASS}.build_connector_meta"

ADAPTER_ANCHORS = (
    line(
        "",
        "from lmcache.v1.cache_engine import LMCacheEngine",
        before("from lmcache.v1 import transform_identity"),
    ),
    line("RequestTracker", "num_lmcache_cached_tokens: int = 0", after(FIELD)),
    line("ReqMeta", "request_configs: Optional[dict] = None", after(FIELD)),
    calling(
        "ReqMeta.from_request_tracker",
        "ReqMeta",
        "return ReqMeta(…)",
        with_argument("ReqMeta", "variant_lost=tracker.variant_lost"),
    ),
    line(f"{_CLASS}.__init__", "self._parent = parent", after(ASKED_BY_VLLM)),
    line(
        f"{_CLASS}._init_connector_state",
        "self._request_trackers: dict[str, RequestTracker] = {}",
        after(STATE),
    ),
    calling(
        f"{_CLASS}.start_load_kv",
        "record_failed_blocks",
        "missing_blocks = self.record_failed_blocks(…)",
        before(FAILED_LOAD),
    ),
    loop(
        f"{_CLASS}.save_kv_layer",
        "request",
        "connector_metadata.requests",
        first_in_body(LOST),
    ),
    line(f"{_CLASS}.wait_for_save", "token_ids = request.token_ids", before(LOST)),
    branch(_MATCHED, "self.lookup_client is None", after(REFUSED)),
    line(
        _MATCHED,
        "self.load_specs[req_id] = LoadSpec(vllm_cached_tokens=num_computed_tokens, "
        "lmcache_cached_tokens=capped_lmcache_tokens, can_load=False)",
        before(WHOLE),
    ),
    function(
        _CLASS,
        "update_state_after_alloc",
        ["self", "request", "num_external_tokens"],
        before(METHODS),
    ),
    loop(
        _META,
        "finished_req_id",
        "scheduler_output.finished_req_ids",
        first_in_body(FORGET),
    ),
    line(
        _META,
        "self._request_trackers[request.req_id] = request_tracker",
        after(TRACKED),
    ),
    branch(_META, "num_current_tokens < len(request_tracker.token_ids)", before(ROLLED_BACK)),
)
