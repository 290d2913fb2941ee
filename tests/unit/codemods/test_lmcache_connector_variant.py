# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_capability,
    lmcache_connector_variant,
    lmcache_key_variant,
    lmcache_layout_lookup,
    lmcache_transform_identity,
)
from kvseal.codemods.lmcache_connector_keys import ADAPTER, LAZY_OFFLOAD, QUERY_RING
from kvseal.codemods.lmcache_connector_variant import CONNECTOR, METADATA

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = (
    lmcache_transform_identity.CODEMOD,
    lmcache_key_variant.CODEMOD,
    lmcache_layout_lookup.CODEMOD,
)
CODEMOD = lmcache_connector_variant.CODEMOD
CAPABILITY = lmcache_capability.CODEMOD
V = "q1" + "b" * 32


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, *IDENTITY)


TAKES_VARIANT = {
    "_create_key", "maybe_submit_lookup_request", "free_lookup_locks", "LoadStoreOp", "decorate",
}  # fmt: skip


def test_no_call_forgets_the_variant(lmcache: LMCacheCopy) -> None:
    """Every call that makes a key, or leads to one, gives a variant."""
    lmcache.apply([*IDENTITY, CODEMOD])
    lazy = [LAZY_OFFLOAD] if lmcache.version == "0.5.6" else []
    seen = []
    for path in (CONNECTOR, METADATA, ADAPTER, QUERY_RING, *lazy):
        tree = ast.parse(lmcache.environment.path(path).read_bytes())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            sends_key = any(ast.unparse(argument).endswith("_key") for argument in node.args)
            if name in TAKES_VARIANT and not sends_key:
                given = ast.unparse(node)
                assert "variant" in given.removeprefix(name), f"{path}:{node.lineno}: {given}"
                seen.append(name)
            if name == "IPCCacheServerKey":
                assert "model_name=transform_identity.decorate(self.model_name, variant)" in (
                    ast.unparse(node)
                )
    assert set(seen) == TAKES_VARIANT
    assert seen.count("_create_key") == 6


DRIVE = """
import importlib.util
if importlib.util.find_spec("vllm") is None:
    print("null")
    raise SystemExit(0)
import inspect, json, os, sys
from types import SimpleNamespace as NS
from lmcache.integration.vllm import lmcache_mp_connector as module
from lmcache.integration.vllm import vllm_multi_process_adapter as adapters
from lmcache.integration.vllm.lmcache_mp_metadata import LMCacheMPRequestMetadata as Meta
from lmcache.v1 import transform_identity
from vllm.v1.request import RequestStatus

V = "q1" + "b" * 32
OTHER = "q1" + "c" * 32
MODEL = "m"
TAKEN = ["transform_identity_v1", "transform_identity_v1:q"]
hits, keys, asked, known, outs = {}, [], [], [TAKEN], []

class Done:
    def __init__(self, value): self.value = value
    def result(self, timeout=None): return self.value
    def query(self): return True

class Client:  # 0.5.5 and later
    def lookup(self, key, tp_size): keys.append(("lookup", key)); return Done(None)
    def query_prefetch_status(self, request_id): return Done(hits[request_id])
    def free_lookup_locks(self, key, tp_size): keys.append(("free", key))
    def get_experimental(self): asked.append(1); return Done(known[0])
    def ping(self, *_): return Done(True)

def send(client, request_type, payloads):  # 0.5.4
    name = request_type.name
    if name == "LOOKUP": return client.lookup(*payloads)
    if name == "FREE_LOOKUP_LOCKS": return client.free_lookup_locks(*payloads)
    if name == "QUERY_PREFETCH_STATUS": return client.query_prefetch_status(*payloads)
    if name == "GET_EXPERIMENTAL": return client.get_experimental()
    raise AssertionError(name)

adapters.send_lmcache_request = send

def scheduler_adapter(chunk=4, servers=("u",)):
    adapter = object.__new__(adapters.LMCacheMPSchedulerAdapter)
    strategy = adapters.ParallelStrategy.__new__(adapters.ParallelStrategy)
    values = dict(mla_only=False, vllm_world_size=2, vllm_worker_id=0, tp_size=2, pp_size=1,
                  n_servers=1)
    for name, parameter in inspect.signature(adapters.ParallelStrategy).parameters.items():
        setattr(strategy, name, values.get(name, 1 if parameter.default is parameter.empty
                                            else parameter.default))
    adapter.__dict__.update(
        _server_urls=list(servers), mq_clients={u: Client() for u in servers},
        req_clients={u: Client() for u in servers}, model_name=MODEL, parallel_strategy=strategy,
        _pending_lookups=set(), _unacked_lookups={}, _finished_lookup_results={},
        _per_server_hits={}, _lookup_status={}, _lookup_params={}, lmcache_tokens_per_chunk=chunk,
        _nonblocking_lookup_status=False, _mq_timeout=5.0, _heartbeats={},
        _health_events={u: NS(is_set=lambda: True, clear=lambda: None) for u in servers},
    )
    return adapter

def connector(prefix_caching=True, servers=("u",)):
    result = object.__new__(module.LMCacheMPConnector)
    result.__dict__.update(
        scheduler_adapter=scheduler_adapter(servers=servers), request_trackers={},
        _vllm_config=NS(cache_config=NS(enable_prefix_caching=prefix_caching)),
        _hit_alignment_tokens=2, _reserve_last_token_for_lookup=False, _eager_prefetch=True,
        _connector_stats=NS(record_lookup=lambda *_: None), lazy_offload=False,
        _role=module.KVConnectorRole.SCHEDULER, _mamba_relocation_window=0,
        _group_tokens_per_block=[2], _kv_cache_events=[],
    )
    return result

def request(name, params=None, salt=None, tokens=12, status=RequestStatus.WAITING, marked=True):
    value = NS(request_id=name, kv_transfer_params=params, cache_salt=salt, status=status,
               all_token_ids=list(range(tokens)), prompt_token_ids=list(range(tokens)),
               num_prompt_tokens=tokens, num_computed_tokens=0, mm_features=[], resumable=False,
               sampling_params=NS(extra_args={"kv_transfer_params": params} if params else None))
    value.num_tokens = tokens
    if marked:
        variant = (params or {}).get("lmcache.variant", "") if isinstance(params, dict) else ""
        value.transform_variant = variant if isinstance(variant, str) else ""
    return value

def admitted(c, value):
    try:
        c.admit_transform_variant(value)
    except ValueError as error:
        return str(error)
    return ""

def step(c, value, found_chunks=0):
    '''Look up, allocate, schedule; return tokens to load and what would be stored.'''
    hits[value.request_id] = found_chunks
    answer = c.get_num_new_matched_tokens(value, 0)
    for _ in range(5):
        if answer[0] is None:
            answer = c.get_num_new_matched_tokens(value, 0)
    blocks = NS(get_block_ids=lambda: ([*range(1, 1 + len(value.all_token_ids) // 2)],))
    c.update_state_after_alloc(value, blocks, answer[0])
    tracker = c.request_trackers[value.request_id]
    tracker.increase_num_scheduled_tokens(len(value.all_token_ids) - answer[0])
    load = Meta.GetRetrieveMetadata(tracker, 4, [2])
    store = Meta.GetStoreMetadata(tracker, 4, [2])
    return dict(load=answer[0], asynchronous=answer[1],
                retrieved=None if load is None else [load.op.start, load.op.end, load.op.variant],
                stored=None if store is None else [store.op.start, store.op.end, store.op.variant])

def names(*kinds):
    return sorted({(kind, key.model_name) for kind, key in keys if not kinds or kind in kinds})

"""


Check = Callable[[dict[str, Any]], None]
SCENARIOS: list[tuple[str, Check]] = []


def scenario(code: str) -> Callable[[Check], Check]:
    """Take in a check of what `code` leaves in `out`."""

    def add(check: Check) -> Check:
        SCENARIOS.append((code, check))
        return check

    return add


@scenario("""
c = connector()
named = {"lmcache.variant": V}
out["ordinary hit"] = step(c, request("a"), 1)
out["ordinary miss"] = step(c, request("b"), 0)
out["ordinary keys"] = names()
keys.clear()
out["variant hit"] = step(c, request("c", named), 1)
out["variant miss"] = step(c, request("d", named), 0)
out["variant part"] = step(c, request("e", {**named, "lmcache.variant_tokens": 9}), 1)
out["variant whole"] = step(c, request("f", {**named, "lmcache.variant_tokens": 9}), 2)
out["variant keys"] = names()
out["empty is ordinary"] = step(c, request("g", {"lmcache.variant": ""}), 1)
keys.clear()
c.on_new_request(request("h", named))
out["eager"] = names()
""")
def what_a_request_looks_up_loads_and_stores(out: dict[str, Any]) -> None:
    own = f"m##tv1-{V}"
    assert out["ordinary hit"] == {
        "load": 4, "asynchronous": True, "retrieved": [0, 4, ""], "stored": [4, 12, ""],
    }  # fmt: skip
    assert out["ordinary miss"] == {
        "load": 0, "asynchronous": False, "retrieved": None, "stored": [0, 12, ""],
    }  # fmt: skip
    assert out["ordinary keys"] == [["lookup", "m"]]
    assert out["variant hit"] == {
        "load": 4, "asynchronous": True, "retrieved": [0, 4, V], "stored": [4, 12, V],
    }  # fmt: skip
    nothing = {"load": 0, "asynchronous": False, "retrieved": None, "stored": None}
    assert out["variant miss"] == nothing
    assert out["variant part"] == nothing
    assert out["variant whole"]["load"] == 8
    # The part that was found and not used is unlocked under the same name.
    assert out["variant keys"] == [["free", own], ["lookup", own]]
    assert out["empty is ordinary"] == out["ordinary hit"]
    assert out["eager"] == [["lookup", own]]


REFUSED = {
    "malformed": '{"lmcache.variant": "q1short"}',
    "of another version": '{"lmcache.variant": "q2" + "b" * 32}',
    "of an unknown scope": '{"lmcache.variant": "x1" + "b" * 32}',
    "no text": '{"lmcache.variant": 7}',
    "null": '{"lmcache.variant": None}',
    "with a line end": '{"lmcache.variant": V + chr(10)}',
    "another spelling": '{"lmcache.Variant": V}',
    "another separator": '{"lmcache-variant": V}',
    "tokens of nothing": '{"lmcache.variant_tokens": 4}',
    "tokens that are none": '{"lmcache.variant": V, "lmcache.variant_tokens": "4"}',
}


CASES = ", ".join(f"{name!r}: {params}" for name, params in REFUSED.items())


@scenario(f"""
c = connector()
for name, params in {{{CASES}}}.items():
    value = request(name, params)
    out[name] = [admitted(c, value) != "", step(c, value, 3)]
    c.on_new_request(request(name + " eager", params))
value = request("salt", salt="a##tv1-" + V)
out["salt"] = [admitted(c, value) != "", step(c, value, 3)]
out["keys"] = names()
""")
def a_bad_variant_is_neither_looked_up_nor_stored(out: dict[str, Any]) -> None:
    nothing = {"load": 0, "asynchronous": False, "retrieved": None, "stored": None}
    assert out.pop("keys") == []
    assert out == {name: [True, nothing] for name in [*REFUSED, "salt"]}


@scenario("""
named = {"lmcache.variant": V}
c = connector()
out["served"] = admitted(c, request("a", named))
admitted(c, request("b", named))
out["asked once"] = len(asked)
out["other scope"] = admitted(c, request("c", {"lmcache.variant": "p1" + "b" * 32}))
out["vllm unaware"] = admitted(c, request("d", named, marked=False))
out["no prefix cache"] = admitted(connector(False), request("e", named, marked=False))
known[0] = ["transfer_query"]
c = connector(servers=("u", "w"))
out["old server"] = admitted(c, request("f", named))
out["old server step"] = step(c, request("g", named), 2)
class Broken(Client):
    def get_experimental(self): raise ConnectionError("gone")
c = connector()
c.scheduler_adapter.mq_clients = c.scheduler_adapter.req_clients = {"u": Broken()}
out["broken server step"] = step(c, request("i", named), 2)
out["keys"] = names()
out["ordinary"] = step(c, request("h"), 1)
""")
def where_a_variant_cannot_be_served_it_is_refused(out: dict[str, Any]) -> None:
    assert out["served"] == out["no prefix cache"] == ""
    assert out["asked once"] == 1
    assert "takes other scopes" in str(out["other scope"])
    assert "prefix cache" in str(out["vllm unaware"])
    assert "does not announce transform_identity_v1" in str(out["old server"])
    assert out["old server step"] == out["broken server step"] == {
        "load": 0, "asynchronous": False, "retrieved": None, "stored": None,
    }  # fmt: skip
    assert out["keys"] == []
    assert out["ordinary"]["load"] == 4


@scenario("""
named = {"lmcache.variant": V}
c = connector()
value = request("a", named)
out["hit"] = step(c, value, 1)
tracker = c.request_trackers["a"]
c.update_connector_output(NS(invalid_block_ids={2}, kv_cache_events=None))
tracker.num_stored_tokens = 0
out["after a failed load"] = Meta.GetStoreMetadata(tracker, 4, [2]) is None
ordinary = request("o")
step(c, ordinary, 1)
c.update_connector_output(NS(invalid_block_ids={2}, kv_cache_events=None))
c.request_trackers["o"].num_stored_tokens = 0
out["ordinary after a failed load"] = Meta.GetStoreMetadata(c.request_trackers["o"], 4, [2]) is None
value = request("p", named)
step(c, value, 1)
value.status = RequestStatus.PREEMPTED
hits["p"] = 0
out["preempted"] = step(c, value, 0)
""")
def kv_that_is_not_the_variant_is_not_stored_as_it(out: dict[str, Any]) -> None:
    """A failed load, and a preempted request that finds nothing, compute from tokens."""
    assert out["hit"]["stored"] == [4, 12, V]
    assert out["after a failed load"] is True
    assert out["ordinary after a failed load"] is False
    assert out["preempted"]["stored"] is None


@scenario("""
adapter = scheduler_adapter(servers=("u", "w"))
adapter._lookup_params = {}
try:
    adapter.maybe_submit_lookup_request("r", [*range(12)], variant=V)
except TypeError as error:
    raise AssertionError(error)
keys.clear()
adapter._free_inconsistent_lookup_locks("r", {"u": 1, "w": 3}, 1)
out["free"] = [[key.model_name, key.start, key.end, key.worker_id] for _, key in keys]
""")
def servers_that_disagree_are_unlocked_under_the_same_name(out: dict[str, Any]) -> None:
    assert out["free"] == [[f"m##tv1-{V}", 4, 12, None]]


@scenario("""
from lmcache.sdk.qringbuffer import QRingBufferAdapter
made = []
class Transfer:
    def submit_store(self, request_id, key, *a, **k): made.append(key); return Done(True)
    submit_retrieve = submit_q_store = submit_store
worker = object.__new__(adapters.LMCacheMPWorkerAdapter)
class Open(adapters.LMCacheMPWorkerAdapter):
    is_kv_writer = is_healthy = True
    worker_id, world_size = 1, 2
    def _ensure_heartbeat_started(self): pass
    def _block_ids_per_group(self, op): return op.block_ids
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return {}
worker = object.__new__(Open)
worker.__dict__.update(model_name=MODEL, transfer_ctx=Transfer(), instance_id=1, kv_caches={},
                       blocks_in_chunk=2, parallel_strategy=scheduler_adapter().parallel_strategy,
                       _kv_events_enabled=False, enable_kv_events=False)
ring = object.__new__(QRingBufferAdapter)
ring.__dict__.update(q_ring=NS(tensors={}), _adapter=worker, q_model_name=MODEL + "##query",
                     _q_store_seq=0, q_store_futures={}, q_store_events={})
for variant in ("", V):
    op = adapters.LoadStoreOp(token_ids=[1, 2, 3, 4], block_ids=[[1, 2]], start=0, end=4,
                              variant=variant)
    for call in (worker.submit_store_request, worker.submit_retrieve_request):
        call("r", op, None)
    ring.submit_q_store_request("r", op, [0], None)
out["names"] = [key.model_name for key in made]
out["workers"] = sorted({key.worker_id for key in made})
""")
def worker_and_query_keys_have_the_operation_s_variant(out: dict[str, Any]) -> None:
    own = f"##tv1-{V}"
    assert out["names"] == [
        "m", "m", "m##query", "m" + own, "m" + own, "m##query" + own,
    ]  # fmt: skip


def test_the_connector_uses_the_variant_and_nothing_else(lmcache: LMCacheCopy) -> None:
    """The real connector classes, their server replaced; one process, as vLLM loads slowly."""
    lmcache.apply([*IDENTITY, CODEMOD, CAPABILITY])
    parts = [
        f"out = {{}}\nkeys.clear(); asked.clear(); known[0] = TAKEN\n{code}\nouts.append(out)\n"
        for code, _ in SCENARIOS
    ]
    outs = lmcache.run(DRIVE + "".join(parts) + "\nprint(json.dumps(outs))")
    if outs is None:
        pytest.skip("the connector needs vLLM, which this Python does not have")
    for (_, check), out in zip(SCENARIOS, outs, strict=True):
        check(out)
