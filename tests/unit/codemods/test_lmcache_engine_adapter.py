# SPDX-License-Identifier: Apache-2.0
"""What vLLM's requests load and store through LMCache's adapter for its in-process engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import lmcache_engine_variant, lmcache_transform_identity

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
CODEMOD = lmcache_engine_variant.CODEMOD
Q = "q1" + "b" * 32


ADAPTER = """
import importlib.util, json
if importlib.util.find_spec("vllm") is None:
    print("null")
    raise SystemExit(0)
import torch
from types import SimpleNamespace as NS
from lmcache.integration.vllm import vllm_v1_adapter as module
from lmcache.v1.config import LMCacheEngineConfig
from vllm.v1.request import RequestStatus

Q, R = "q1" + "b" * 32, "r1" + "c" * 32
NAMED = {"lmcache.variant": Q}
outs, lookups, hits = [], [], {}

class Client:
    def __init__(self): self.known = {}
    def lookup_cache(self, lookup_id): return self.known.get(lookup_id, -1)
    def lookup(self, token_ids, lookup_id, request_configs=None):
        lookups.append(request_configs)
        return self.known.setdefault(lookup_id, hits[lookup_id])
    def clear_lookup_status(self, lookup_id): self.known.pop(lookup_id, None)
    def supports_producer_reuse(self): return True

class Engine:
    gpu_connector = None
    def __init__(self): self.done, self.lost = [], 0
    def retrieve(self, tokens, mask, request_configs=None, **_):
        self.done.append(["load", len(tokens), request_configs])
        mask = mask.clone()
        mask[len(tokens) - self.lost:] = False
        return mask
    def store(self, tokens, mask, request_configs=None, **_):
        self.done.append(["store", len(tokens) - int(mask.sum()), len(tokens), request_configs])
    def store_layer(self, tokens, mask, **given):
        self.store(tokens, mask, **given)
        yield
        yield
    def lookup_unpin(self, req_id): pass

def connector(role="SCHEDULER", kv_role="kv_both", prefix_caching=False, extra={}, **settings):
    config = LMCacheEngineConfig.from_defaults(chunk_size=4, **settings)
    manager = NS(start_services=lambda: None, lmcache_engine_metadata=None, post_init=lambda: None,
                 lookup_client=Client(), lmcache_engine=None if role == "SCHEDULER" else Engine())
    module.lmcache_get_or_create_config = lambda: config
    module.VllmServiceFactory = lambda *_: None
    module.LMCacheManager = lambda *_, **__: manager
    module.print_banner_once = lambda *_: None
    module.get_pp_group = lambda: NS(is_last_rank=True)
    vllm = NS(device_config=NS(device="cpu"), parallel_config=NS(tensor_parallel_size=1),
              kv_transfer_config=NS(kv_role=kv_role, kv_connector_extra_config={},
                                    get_from_extra_config=lambda k, d: extra.get(k, d)),
              cache_config=NS(block_size=2, enable_prefix_caching=prefix_caching),
              model_config=NS(get_num_layers=lambda _: 1))
    parent = NS()
    result = module.LMCacheConnectorV1Impl(vllm, module.KVConnectorRole[role], parent)
    assert parent.admit_transform_variant == result.admit_transform_variant
    result.kv_caches = {"layer": None}
    return result

def request(name, params=None, salt=None, tokens=13, marked=False):
    value = NS(request_id=name, kv_transfer_params=params, cache_salt=salt, mm_features=[],
               all_token_ids=list(range(tokens)), prompt_token_ids=list(range(tokens)),
               num_tokens=tokens, num_computed_tokens=0, status=RequestStatus.WAITING, priority=0,
               sampling_params=NS(extra_args={"kv_transfer_params": params} if params else None))
    if marked:
        value.transform_variant = params["lmcache.variant"]
    return value

def scheduled(c, new=(), cached=(), resumed=(), finished=(), tokens=0):
    blocks = [([*range(8)],) if resumed else None for _ in cached]
    names = [one.req_id for one in new] + [one.request_id for one in cached]
    return c.build_connector_meta(NS(
        scheduled_new_reqs=list(new), finished_req_ids=set(finished),
        scheduled_cached_reqs=NS(req_ids=[one.request_id for one in cached],
                                 new_block_ids=blocks, resumed_req_ids=set(resumed)),
        num_scheduled_tokens=dict.fromkeys(names, tokens)))

def worked(c, meta, lost=0, **settings):
    '''What a worker loads and stores for the scheduler's word.'''
    worker = connector("WORKER", c.kv_role, **settings)
    worker.lmcache_engine.lost = lost
    worker._parent._connector_metadata = meta
    worker._parent._get_connector_metadata = lambda: meta
    worker.start_load_kv(NS(attn_metadata=1))
    worker.save_kv_layer("layer", None, None)
    worker.wait_for_save()
    return worker.lmcache_engine.done

def looked_up(c, value, found, computed=0):
    hits[value.request_id] = found
    load = c.get_num_new_matched_tokens(value, computed)
    c.update_state_after_alloc(value, load)
    value.num_computed_tokens = computed + load
    return value.num_tokens - value.num_computed_tokens

def step(c, value, found, computed=0, lost=0, **settings):
    '''Look up, allocate, schedule, work.'''
    rest = looked_up(c, value, found, computed)
    new = NS(req_id=value.request_id, prompt_token_ids=value.prompt_token_ids,
             block_ids=([*range(8)],), sampling_params=value.sampling_params, mm_features=[],
             num_computed_tokens=value.num_computed_tokens)
    return worked(c, scheduled(c, [new], tokens=rest), lost, **settings)

def resumed(c, value, found):
    '''Preempted, looked up again, scheduled again.'''
    rest = looked_up(c, value, found)
    return worked(c, scheduled(c, cached=[value], resumed=[value.request_id], tokens=rest))

def admitted(c, value):
    try:
        c.admit_transform_variant(value)
    except ValueError as error:
        return str(error)
    return ""

"""

Check = Callable[[dict[str, Any]], None]
SCENARIOS: list[tuple[str, Check]] = []


def scenario(code: str) -> Callable[[Check], Check]:
    """Take in a check of what `code` leaves in `out`."""

    def add(check: Check) -> Check:
        SCENARIOS.append((code, check))
        return check

    return add


OWN = {"lmcache.variant": Q}


@scenario("""
c = connector()
out["ordinary hit"] = step(c, request("a"), 8)
out["ordinary miss"] = step(c, request("b"), 0)
out["empty"] = step(c, request("c", {"lmcache.variant": ""}), 8)
lookups.clear()
out["hit"] = step(c, request("d", NAMED), 8)
out["miss"] = step(c, request("e", NAMED), 0)
out["lookups"] = list(lookups)
out["part"] = step(c, request("f", {**NAMED, "lmcache.variant_tokens": 13}), 8)
out["whole"] = step(c, request("g", {**NAMED, "lmcache.variant_tokens": 9}), 8)[0][:2]
scheduled(c, finished="abcdefg")
out["remembered"] = list(c._variants_found)
""")
def what_a_request_looks_up_loads_and_stores(out: dict[str, Any]) -> None:
    """Chunks computed on the variant are stored as it; those computed for want of it are not."""
    assert out["ordinary hit"] == [["load", 8, None], ["store", 8, 12, None]]
    assert out["ordinary miss"] == [["store", 0, 12, None]]
    empty = {"lmcache.variant": ""}
    assert out["empty"] == [["load", 8, empty], ["store", 8, 12, empty]]
    assert out["hit"] == [["load", 8, OWN], ["store", 8, 12, OWN]]
    assert out["miss"] == out["part"] == []
    assert out["whole"] == ["load", 8]
    assert out["lookups"] == [OWN, OWN]
    assert out["remembered"] == []


REFUSED = {
    "malformed": '{"lmcache.variant": "q1short"}',
    "of another version": '{"lmcache.variant": "q2" + "b" * 32}',
    "no text": '{"lmcache.variant": 7}',
    "null": '{"lmcache.variant": None}',
    "another spelling": '{"lmcache.Variant": Q}',
    "without a dot": '{"lmcache_variant": Q}',
    "tokens of nothing": '{"lmcache.variant_tokens": 4}',
    "of a scope that is not allowed": '{"lmcache.variant": "g" + Q[1:]}',
    "disaggregated": '{**NAMED, "disagg_spec": DISAGG}',
}
CASES = ", ".join(f"{name!r}: {params}" for name, params in REFUSED.items())


@scenario(f"""
DISAGG = dict(req_id="a", receiver_host="h", receiver_init_port=1, receiver_alloc_port=2)
lookups.clear()
for role in ("kv_both", "kv_producer"):
    c = connector(kv_role=role)
    for name, params in {{{CASES}}}.items():
        value = request(name, params)
        out[role + " " + name] = [admitted(c, value) != "", step(c, value, 8)]
value = request("salt", salt="a##tv1-" + Q)
out["forged salt"] = [admitted(c, value) != "", step(connector(), value, 8)]
out["lookups"] = list(lookups)
""")
def a_bad_variant_is_neither_looked_up_nor_stored(out: dict[str, Any]) -> None:
    assert out.pop("lookups") == []
    assert len(out) == 2 * len(REFUSED) + 1
    assert out == {name: [True, []] for name in out}


@scenario("""
lookups.clear()
out["served"] = admitted(connector(), request("a", NAMED))
out["salted"] = admitted(connector(), request("a", NAMED, salt="tenant"))
out["vllm unaware"] = admitted(connector(prefix_caching=True), request("a", NAMED))
out["vllm aware"] = admitted(connector(prefix_caching=True), request("a", NAMED, marked=True))
out["producer"] = admitted(connector(kv_role="kv_producer"), request("a", NAMED))
out["layerwise"] = admitted(connector(use_layerwise=True), request("a", NAMED))
out["blending"] = admitted(connector(enable_blending=True), request("a", NAMED))
out["tenant"] = step(connector(), request("a", NAMED, salt="tenant"), 8)
c = connector(use_layerwise=True)
out["layer by layer"] = step(c, request("a", NAMED), 8, use_layerwise=True)
out["ordinary layers"] = step(c, request("b"), 0, use_layerwise=True)
out["lookups"] = [configs for configs in lookups if configs]
out["ordinary tenant"] = step(connector(), request("b", salt="tenant"), 8)[0]
""")
def where_a_variant_cannot_be_served_it_is_refused(out: dict[str, Any]) -> None:
    assert out["served"] == out["vllm aware"] == ""
    assert "cache salts" in out["salted"]
    assert "prefix cache" in out["vllm unaware"]
    assert "disaggregated" in out["producer"]
    assert "layerwise" in out["layerwise"]
    assert "layerwise" in out["blending"]
    assert out["tenant"] == out["layer by layer"] == out["lookups"] == []
    assert out["ordinary layers"] == [["store", 0, 12, None]]
    assert out["ordinary tenant"] == ["load", 8, None]


@scenario("""
c = connector(extra={"lmcache.max_tokens_per_load": 4})
out["in parts"] = step(c, request("a", NAMED), 8)
out["ordinary in parts"] = step(c, request("b"), 8)[0]
out["too little"] = step(connector(min_retrieve_tokens=9), request("a", NAMED), 8)
out["behind vLLM's own"] = step(connector(), request("a", NAMED), 8, computed=4)
out["ordinary behind"] = step(connector(), request("b"), 8, computed=4)[0]
""")
def a_variant_is_loaded_whole_or_not_at_all(out: dict[str, Any]) -> None:
    assert out["in parts"] == out["too little"] == out["behind vLLM's own"] == []
    assert out["ordinary in parts"] == ["load", 4, None]
    assert out["ordinary behind"] == ["load", 8, None]


@scenario("""
for name, params in (("variant", NAMED), ("ordinary", None)):
    c = connector()
    value = request("a", params)
    out[name] = step(c, value, 8, lost=4)
    value.num_computed_tokens = 4
    out[name + " after"] = worked(c, scheduled(c, cached=[value], tokens=9))
""")
def what_is_computed_for_a_failed_load_is_not_stored_as_the_variant(out: dict[str, Any]) -> None:
    assert out["variant"] == [["load", 8, OWN]]
    assert out["variant after"] == []
    assert out["ordinary"] == [["load", 8, None], ["store", 8, 12, None]]
    assert out["ordinary after"] == [["store", 4, 12, None]]


@scenario("""
c = connector()
value = request("a", NAMED)
step(c, value, 8)
out["found again"] = resumed(c, value, 8)
out["gone"] = resumed(c, value, 0)
out["back"] = resumed(c, value, 8)
""")
def a_preempted_request_goes_on_with_its_variant_or_stores_nothing(out: dict[str, Any]) -> None:
    assert out["found again"] == [["load", 8, OWN], ["store", 8, 12, OWN]]
    assert out["gone"] == []
    # A variant that is there again is too late for tokens that were chosen without it.
    assert out["back"] == []


def test_the_adapter_loads_and_stores_a_variant_or_nothing(lmcache: LMCacheCopy) -> None:
    """The real adapter of vLLM's scheduler and worker, their LMCache engine replaced."""
    lmcache.apply([IDENTITY, CODEMOD])
    parts = [f"out = {{}}\n{code}\nouts.append(out)\n" for code, _ in SCENARIOS]
    outs = lmcache.run(
        ADAPTER + "".join(parts) + "\nprint(json.dumps(outs))", LMCACHE_TRACK_USAGE="false"
    )
    if outs is None:
        pytest.skip("the adapter needs vLLM, which this Python does not have")
    for (_, check), out in zip(SCENARIOS, outs, strict=True):
        check(out)
