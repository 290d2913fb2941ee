# SPDX-License-Identifier: Apache-2.0
"""LMCache's in-process engine: real keys, real storage, the real vLLM adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import lmcache_engine_variant, lmcache_transform_identity

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
CODEMOD = lmcache_engine_variant.CODEMOD
Q, R = "q1" + "b" * 32, "r1" + "c" * 32
SEED = {"PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false"}


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY)


ORDINARY = """
import json, os, pickle, tempfile, time
from pathlib import Path
from types import SimpleNamespace as NS
import torch
from lmcache.utils import CacheEngineKey, LayerCacheEngineKey, parse_cache_key
from lmcache.v1.token_database import ChunkedTokenDatabase

Q, R = "q1" + "b" * 32, "r1" + "c" * 32

def named(variant):
    return {"lmcache.variant": variant} if variant else None

def made(model, configs=None):
    database = object.__new__(ChunkedTokenDatabase)
    database.metadata = NS(model_name=model, world_size=2, worker_id=1, kv_dtype=torch.bfloat16)
    database.save_only_first_rank, database.chunk_size = False, 4
    found = database.process_tokens(hashes=[255, 2**63 + 1], offsets=[4, 4],
                                    request_configs=configs)
    return [key for _, _, key in found]

def texts(model, configs=None):
    '''Every text of the keys of one request.'''
    out = []
    for key in made(model, configs):
        for one in (key, key.get_first_layer(), *key.split_layers(2), key.with_new_worker_id(7)):
            again = parse_cache_key(one.to_string())
            assert again == one and hash(again) == hash(one) and type(again) is type(one)
            assert pickle.loads(pickle.dumps(one)) == one
            out += [one.to_string(), json.dumps(one.to_dict()), repr(one)]
        assert CacheEngineKey.from_dict(key.to_dict()) == key
    return out

def refused(make):
    try:
        return repr(make())
    except ValueError:
        return "refused"

models = ["m", "a/b-c.d_e", "m#tv1-", "m##t"]
configs = [None, {}, {"lmcache.tag.a": "x"}, {"lmcache.tag.a": "x", "lmcache.tag.b": "y"},
           {"lmcache.skip_save": True}, {"lmcache.variant": ""}]
ordinary = {f"{m}|{c}": texts(m, c) for m in models for c in configs}
"""

VARIANTS = """
def check_variants():
    out = {}
    for model in ("m", "a/b"):
        own, other, plain = (made(model, named(v))[0] for v in (Q, R, ""))
        tagged = made(model, {**named(Q), "lmcache.tag.a": "x"})[0]
        texts(model, named(Q))
        out[model] = [own.variant, other.variant, plain.variant, len({own, other, plain, tagged}),
                      own.split_layers(2)[1].variant, tagged.variant, own.to_string(),
                      parse_cache_key(own.to_string()).variant, own.with_new_worker_id(3).variant]
    return out

BAD = ["m##tv1-", "m##tv1-" + Q[:-1], "m##tv1-" + Q.upper(), "m##tv2-" + Q, "m##tv1-x1" + Q[2:],
       "m##tv1-" + Q + "##query", "m##tv1-" + Q + "##tv1-" + Q, "m##TV1-" + Q, "a##tv"]

def check_bad_names():
    fields = (1, 0, 255, torch.bfloat16)
    plain = made("m")[0].to_dict()
    return {name: [refused(lambda: CacheEngineKey(name, *fields)),
                   refused(lambda: LayerCacheEngineKey(name, *fields)),
                   refused(lambda: parse_cache_key(f"{name}@1@0@ff@bfloat16")),
                   refused(lambda: parse_cache_key(f"{name}@1@0@ff@bfloat16@3")),
                   refused(lambda: CacheEngineKey.from_dict({**plain, "model_name": name}))]
            for name in BAD}

def check_bad_requests():
    bad = [{"lmcache.variant": "q1short"}, {"lmcache.variant": None}, {"lmcache.variant": 7},
           {"lmcache.variant": Q + chr(10)}, {"lmcache.variants": Q}, {"lmcache.Variant": Q},
           {"lmcache.variant_tokens": 4}]
    return [refused(lambda: made("m", configs)) for configs in bad]

def check_forged_models():
    model = "m##tv1-" + Q
    return [refused(lambda: made(model)), refused(lambda: made(model, named(Q))),
            refused(lambda: ChunkedTokenDatabase(None, NS(model_name=model)))]
"""

ENGINE = """
from lmcache.utils import mock_up_broadcast_fn
from lmcache.v1.cache_engine import LMCacheEngine
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from lmcache.v1.metadata import LMCacheMetadata

TOKENS = list(range(8))
ALL = ("", Q, R)

class Connector(GPUConnectorInterface):
    def to_gpu(self, memory, start, end, **given): given["kv"][:, :, start:end] = memory.tensor
    def from_gpu(self, memory, start, end, **given): memory.tensor[:] = given["kv"][:, :, start:end]
    def batched_to_gpu(self, *lists, **given):
        for one in zip(*lists): self.to_gpu(*one, **given)
    def batched_from_gpu(self, *lists, **given):
        for one in zip(*lists): self.from_gpu(*one, **given)
    def get_shape(self, tokens): return torch.Size([2, 1, tokens, 4])

def metadata():
    return LMCacheMetadata("org/m", 1, 1, 0, 0, torch.float32, (1, 2, 4, 1, 4), chunk_size=4,
                           engine_id="kvseal-" + str(os.getpid()))

def engine(**settings):
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=4, max_local_cpu_size=0.01, pre_caching_hash_algorithm="sha256_cbor", **settings)
    result = LMCacheEngine(config, metadata(), ChunkedTokenDatabase(config, metadata()),
                           Connector(), mock_up_broadcast_fn, mock_up_broadcast_fn)
    return result

def opened(**settings):
    result = engine(**settings)
    result.post_init()
    return result

def kv(variant):
    return torch.full((2, 1, 8, 4), float(ALL.index(variant) + 1))

def store(e, *variants):
    for variant in variants:
        e.store(TOKENS, kv=kv(variant), request_configs=named(variant), req_id="s")

def gets(e, variant):
    '''Tokens found, and whose KV was given back.'''
    found = e.lookup(TOKENS, lookup_id="g", pin=True, request_configs=named(variant))
    got = torch.zeros(2, 1, 8, 4)
    if found:
        e.retrieve(TOKENS[:found], kv=got, request_configs=named(variant), req_id="g")
        e.lookup_unpin("g")
    return [found, next((v for v in ALL if torch.equal(got, kv(v))), None)]

def check_apart():
    e = opened()
    before = [gets(e, v) for v in ALL]
    store(e, R)
    one = [gets(e, v) for v in ALL]
    store(e, "", Q)
    three = [gets(e, v) for v in ALL]
    removed = e.clear(TOKENS, request_configs=named(Q))
    without = refused(lambda: e.clear(request_configs=named(R)))
    left = [gets(e, v)[0] for v in ALL]
    cleared = e.clear()
    empty = [gets(e, v)[0] for v in ALL]
    e.close()
    return [before, one, three, removed, without, left, cleared, empty]

class Liar:
    '''A backend that has every chunk, as one may that looks at hashes alone.'''
    def __init__(self, cpu): self.seen, self.cpu = set(), cpu
    def note(self, keys): self.seen.update(key.variant for key in keys); return len(keys)
    def batched_contains(self, keys, pin=False): return self.note(keys)
    async def batched_async_contains(self, lookup_id, keys, pin=False): return self.note(keys) * 0
    def batched_get_blocking(self, keys): self.note(keys); return [None] * len(keys)
    def batched_submit_put_task(self, keys, objects, transfer_spec=None): self.note(keys)
    def batched_remove(self, keys): return self.note(keys)
    def contains(self, key, pin=False): return bool(self.note([key]))
    def get_blocking(self, key): self.note([key])
    get_non_blocking = get_blocking
    def remove(self, key): return self.note([key])
    def unpin(self, key): pass
    def get_allocator_backend(self): return self.cpu
    def close(self): pass

NAMES = ["P2PBackend", "PDBackend", "NixlStorageBackend", "GdsBackend", "MaruBackend", "Another",
         "LocalDiskBackend", "RemoteBackend", "RemoteBackend-x"]

def check_places():
    import asyncio
    e = opened()
    manager, out = e.storage_manager, {}
    cpu = manager.storage_backends["LocalCPUBackend"]
    for name in NAMES:
        seen, found = {}, []
        manager.storage_backends[name] = liar = Liar(cpu)
        for variant in ALL:
            configs = named(variant)
            found.append(e.lookup(TOKENS, request_configs=configs))
            for what in ("batched_contains", "contains", "get", "get_non_blocking", "batched_get",
                         "get_block_mapping", "batched_put", "remove", "batched_remove",
                         "async_lookup_and_prefetch"):
                liar.seen = set()
                infos = [(key, start, end) for start, end, key in
                         e.token_database.process_tokens(TOKENS, request_configs=configs)]
                keys = [key for key, _, _ in infos]
                call = getattr(manager, what)
                if what == "batched_put":
                    store(e, variant)
                elif what == "async_lookup_and_prefetch":
                    task = call("l", keys, [0, 4, 8])
                    asyncio.run_coroutine_threadsafe(task, manager.loop).result()
                elif what == "get_non_blocking":
                    call(keys[0], name)  # LocalCPUBackend has no such function
                elif what == "batched_get":
                    call(keys, name)  # LocalCPUBackend answers for all
                elif what == "get_block_mapping":
                    call(infos)
                else:
                    call(keys if what.startswith("batched") else keys[0])
                seen.setdefault(what, []).append(variant in liar.seen)
            e.clear()
        del manager.storage_backends[name]
        out[name] = [found, sorted({tuple(row) for row in seen.values()})]
    e.close()
    return out

def check_disk():
    folder = tempfile.mkdtemp()
    e = opened(local_disk=folder, max_local_disk_size=0.01)
    disk = e.storage_manager.storage_backends["LocalDiskBackend"]
    sent = disk.batched_msg_sender = Sender()
    store(e, *ALL)
    for _ in range(50):
        if len(disk.dict) == 4: break
        time.sleep(0.1)
    files = sorted({path.name.split("@")[0] for path in Path(folder).iterdir()})
    e.clear(locations=["LocalCPUBackend"])
    got = [gets(e, v) for v in ALL]
    for key in list(disk.dict): disk.remove(key)
    disk.batched_msg_sender = None
    e.close()
    return [files, got, sent.counts()]

class Sender:
    def __init__(self): self.operations = []
    def add_kv_op(self, op_type, key): self.operations.append(op_type.name)
    def counts(self): return [self.operations.count(name) for name in ("ADMIT", "EVICT")]

def check_announcements():
    from lmcache.v1.cache_controller.full_sync_sender import FullSyncSender
    e = opened(enable_kv_events=True)
    cpu = e.storage_manager.local_cpu_backend
    sent = cpu.batched_msg_sender = Sender()
    store(e, *ALL)
    sync = object.__new__(FullSyncSender)
    sync.local_cpu_backend = cpu
    out = [len(e.get_kv_events()), len(cpu.get_keys()), len(sync._get_all_hot_cache_keys())]
    for variant in ALL:
        try:
            next(e.store_layer(TOKENS, request_configs=named(variant)))
        except AssertionError:
            pass  # it has announced all chunks before it finds that this connector knows no layers
    out.append(len(e.get_kv_events()))
    e.clear()
    cpu.batched_msg_sender = None
    e.close()
    return out + sent.counts()

def check_peers():
    import asyncio
    from lmcache.v1.storage_backend import p2p_backend as module
    e = opened()
    async def moved(*_, **__): pass
    backend = object.__new__(module.P2PBackend)
    backend.__dict__.update(
        local_cpu_backend=e.storage_manager.local_cpu_backend, config=e.config,
        full_size_shapes=e.metadata.get_shapes(), dtypes=e.metadata.get_dtypes(), fmt=None,
        transfer_channel=NS(remote_xfer_handler_exists=lambda _: True, async_batched_write=moved,
                            async_batched_read=moved))
    def keys(variant):
        found = e.token_database.process_tokens(TOKENS, request_configs=named(variant))
        return [key.to_string() for _, _, key in found]
    out = []
    for variant in ALL:
        put = asyncio.run(backend._handle_batched_lookup_and_put(module.BatchedLookupAndPutMsg(
            sender_id="p", keys=keys(variant), offsets=[4, 4], mem_indexes=[0, 1])))
        planted = e.lookup(TOKENS, request_configs=named(variant))
        store(e, variant)
        got = asyncio.run(backend._handle_batched_lookup_and_get(module.BatchedLookupAndGetMsg(
            lookup_id="l", receiver_id="p", keys=keys(variant), mem_indexes=[0, 1])))
        out.append([put.num_read_chunks, planted, getattr(got, "num_hit_chunks", "error")])
    e.close()
    return out
"""

CLIENTS = """
import queue
from lmcache.v1.lookup_client import lmcache_async_lookup_client as asynchronous
from lmcache.v1.lookup_client.hit_limit_lookup_client import HitLimitLookupClient
from lmcache.v1.lookup_client.lmcache_lookup_client import LMCacheLookupClient, LMCacheLookupServer
from lmcache.v1.lookup_client.lmcache_lookup_client_bypass import LMCacheBypassLookupClient
from lmcache.v1.lookup_client.mooncake_lookup_client import MooncakeLookupClient

class Pipe:
    world_size = 1
    def __init__(self): self.there, self.back = queue.Queue(), queue.Queue()
    def send_and_recv_all(self, frames): self.there.put(frames); return [self.back.get(timeout=20)]
    def recv_request(self):
        try: return "id", self.there.get(timeout=0.1)
        except queue.Empty: return None
    def send_response(self, identity, response): self.back.put(response)
    def close(self): pass

def asked(client):
    return [client.lookup(TOKENS, f"id{i}", request_configs=named(v)) for i, v in enumerate(ALL)]

def check_clients():
    out = {}
    e = opened()
    store(e, "", R)
    out["bypass"] = asked(LMCacheBypassLookupClient(e.config, metadata(), e))
    pipe = Pipe()
    server = LMCacheLookupServer(e, metadata(), pipe)
    client = LMCacheLookupClient(e.config, metadata(), pipe)
    out["sync"] = asked(client)
    e.config.hit_miss_ratio = 0.5
    out["limited"] = asked(HitLimitLookupClient(client, e.config))
    server.close()
    mooncake = object.__new__(MooncakeLookupClient)
    mooncake.token_database = e.token_database
    mooncake.store = NS(batch_is_exist=lambda keys: [1] * len(keys))
    out["mooncake"] = asked(mooncake)
    e.close()
    e = engine(enable_async_loading=True)
    server = asynchronous.LMCacheAsyncLookupServer(e, metadata())
    e.post_init(async_lookup_server=server)
    store(e, "", R)
    client = asynchronous.LMCacheAsyncLookupClient(e.config, metadata())
    out["async"] = []
    for index, variant in enumerate(ALL):
        name = f"id{index}"
        client.lookup_cache(name)
        client.lookup(TOKENS, name, request_configs=named(variant))
        while (found := client.lookup_cache(name)) is None: pass
        got = torch.zeros(2, 1, 8, 4)
        if found:
            e.retrieve(TOKENS[:found], kv=got, request_configs=named(variant), req_id=name)
        out["async"].append([found, next((v for v in ALL if torch.equal(got, kv(v))), None)])
    # Both wait for a message without end; they are threads of this process.
    client.running = server.running = False
    e.close()
    return out
"""

RUN = """
import traceback
try:
    found = {n[6:]: check() for n, check in list(globals().items()) if n[:6] == "check_"}
    print(json.dumps(found | {"ordinary": ordinary}), flush=True)
    os._exit(0)
except BaseException:
    traceback.print_exc()
    os._exit(1)  # LMCache's threads would keep the process
"""


@pytest.fixture(scope="module")
def stock(lmcache: LMCacheCopy) -> Any:
    """The texts that stock LMCache makes of ordinary keys."""
    lmcache.apply([])
    return lmcache.run(ORDINARY + "print(json.dumps(ordinary))", **SEED)


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy, stock: Any) -> Any:
    """What the edited LMCache does, by the name of the check; one process, as it starts slowly."""
    lmcache.apply([IDENTITY, CODEMOD])
    return lmcache.run(ORDINARY + VARIANTS + ENGINE + CLIENTS + RUN, **SEED)


def test_ordinary_keys_are_those_of_stock(stock: Any, found: Any) -> None:
    assert len(stock) == 24
    assert json.dumps(found["ordinary"]) == json.dumps(stock)


def test_keys_of_variants_differ_and_read_back(found: Any) -> None:
    for model, row in found["variants"].items():
        text = f"{model}##tv1-{Q}@2@1@ff@bfloat16"
        assert row == [Q, R, "", 4, Q, Q, text, Q, Q]


def test_what_only_resembles_a_variant_is_refused(found: Any) -> None:
    assert list(found["bad_names"].values()) == [["refused"] * 5] * 9
    assert found["bad_requests"] == ["refused"] * 7
    assert found["forged_models"] == ["refused"] * 3


def test_the_engine_gives_each_what_is_its_own(found: Any) -> None:
    none = [0, None]
    before, one, three, removed, unnamed, left, cleared, empty = found["apart"]
    assert before == [none] * 3
    assert one == [none, none, [8, R]]
    assert three == [[8, ""], [8, Q], [8, R]]
    assert (removed, unnamed, left) == (2, "refused", [8, 0, 8])
    assert (cleared, empty) == (16, [0, 0, 0])


def test_backends_that_may_know_hashes_alone_see_no_variant(found: Any) -> None:
    """Found tokens of ordinary, query-scoped and request-local; who reached the backend."""
    nothing = [[8, 0, 0], [[True, False, False]]]
    shared = [[8, 8, 0], [[True, True, False]]]
    whole_keys = ("LocalDiskBackend", "RemoteBackend", "RemoteBackend-x")
    assert found["places"] == {
        name: shared if name in whole_keys else nothing for name in found["places"]
    }
    assert len(found["places"]) == 9


def test_request_local_kv_is_not_written_to_disk(found: Any) -> None:
    files, got, messages = found["disk"]
    assert files == ["org-m", f"org-m##tv1-{Q}"]
    assert got == [[8, ""], [8, Q], [0, None]]
    assert messages == [2, 2]


def test_nobody_is_told_of_a_variant(found: Any) -> None:
    """Events and a controller's messages are of the two ordinary chunks of six."""
    events, kept, synced, layer_events, admitted, evicted = found["announcements"]
    assert (events, kept, synced, layer_events) == (2, 6, 2, 2)
    assert (admitted, evicted) == (2, 2)


def test_a_peer_gets_no_variant_and_plants_none(found: Any) -> None:
    assert found["peers"] == [[2, 8, 2], [0, 0, "error"], [0, 0, "error"]]


def test_lookups_of_every_kind_name_the_variant(found: Any) -> None:
    """Ordinary and request-local KV is there, query-scoped is not."""
    assert found["clients"] == {
        "bypass": [8, 0, 8],
        "sync": [8, 0, 8],
        "limited": [4, 0, 4],
        "mooncake": [8, 0, 0],
        "async": [[8, ""], [0, None], [8, R]],
    }
