# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_key_variant,
    lmcache_scope_enforcement,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
CODEMOD = lmcache_scope_enforcement.CODEMOD
LOCAL, QUERY = "m##tv1-r1" + "a" * 32, "m##tv1-q1" + "b" * 32

CHECKS = """
import inspect, json, os, sys, tempfile, time
from pathlib import Path
import torch
from lmcache.v1.distributed import config
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.storage_manager import StorageManager

LOCAL, OTHER, QUERY = "r1" + "a" * 32, "r1" + "c" * 32, "q1" + "b" * 32
LAYOUT = MemoryLayoutDesc(shapes=[torch.Size([2, 1, 4, 8])], dtypes=[torch.float32])

def key(variant, index=0):
    return ObjectKey(bytes([index] * 32), "m##tv1-" + variant if variant else "m", 0x01000100)

def manager(folder=None):
    arguments = ["--l1-size-gb", "0.1", "--eviction-policy", "LRU"]
    if folder:
        arguments += ["--l2-adapter", json.dumps({"type": "fs", "base_path": folder})]
    return StorageManager(config.parse_args(arguments))

def write(sm, *keys):
    mode = ("new",) if "mode" in inspect.signature(sm.reserve_write).parameters else ()
    reserved = sm.reserve_write(list(keys), LAYOUT, *mode)
    for memory in reserved.values():
        memory.tensor.fill_(1.0)
    sm.finish_write(list(reserved))
    return len(reserved)

def l1(sm):
    return sm._l1_manager

def read(sm, *keys):
    found = l1(sm).reserve_read(list(keys))
    return [memory is not None for _, memory in found.values()]

def present(sm, *keys):
    return [l1(sm).get_object_state(k) is not None for k in keys]

def check_lease():
    sm = manager()
    local, other, query, plain = key(LOCAL), key(OTHER), key(QUERY), key("")
    result = {"written": write(sm, local, other, query, plain)}
    result["read"] = read(sm, local, other, query, plain)
    for k in (other, query, plain):
        l1(sm).finish_read([k])
    # `local` is still being read.
    result["deleted_in_use"] = sm.end_lease(LOCAL)
    result["in_use"] = present(sm, local)
    result["read_after_end"] = read(sm, local)
    l1(sm).finish_read([local])
    for _ in range(40):
        if not present(sm, local)[0]:
            break
        time.sleep(0.1)
    result["after_use"] = present(sm, local, other, query, plain)
    result["late_write"] = write(sm, local, key(LOCAL, 1))
    result["deleted"] = sm.end_lease(OTHER)
    result["after_end"] = present(sm, other, query, plain)
    result["unknown"] = [sm.end_lease("r1" + "d" * 32), write(sm, key("r1" + "d" * 32))]
    try:
        sm.end_lease(QUERY)
    except ValueError as error:
        result["refused"] = str(error)
    result["status"] = sm.lease_status()
    sm.close()
    return result

def check_limit():
    os.environ["LMCACHE_TRANSFORM_LEASE_SECONDS"] = "1.5"
    sm = manager()
    keys = [key(LOCAL), key(QUERY), key("")]
    result = {"written": write(sm, *keys)}
    result["before"] = read(sm, *keys)
    l1(sm).finish_read(keys)
    time.sleep(1.6)
    result["expired"] = read(sm, *keys)
    for _ in range(40):
        if not present(sm, keys[0])[0]:
            break
        time.sleep(0.1)
    result["present"] = present(sm, *keys)
    sm.close()
    return result

def check_l2():
    folder = tempfile.mkdtemp()
    sm = manager(folder)
    keys = [key(LOCAL), key(QUERY), key("")]
    write(sm, *keys)

    def files():
        return sorted(p.name.split("@")[0] for p in Path(folder).rglob("*.data"))

    for _ in range(30):
        if len(files()) >= 3:
            break
        time.sleep(0.1)
    result = {"files": files()}
    sm.close()
    return result

def check_lookup():
    from types import SimpleNamespace
    from lmcache.v1.distributed.storage_manager import StorageManager
    asked = {}

    class Controller:
        def submit_prefetch_request(self, spec, skip_l2=False):
            self.skipped = skip_l2
            return 7

    def looked_up(variant):
        sm = manager()
        sm._prefetch_controller, kept = Controller(), sm._prefetch_controller
        sm._has_l2_adapters = lambda: True
        controller = sm._prefetch_controller
        from lmcache.v1.distributed import api
        if hasattr(api, "PrefetchTaskSpec"):
            row = api.GroupedObjectKeys(keys=[key(variant)], object_group_id=0, layout_desc=LAYOUT)
            sm.submit_prefetch_task(api.PrefetchTaskSpec(key_groups=[row], fetching_policy="full"))
            answer = not controller.skipped
        else:
            spec = api.PrefetchRequestSpec(
                keys=[key(variant)], group_layout_descs={0: LAYOUT},
                attn_desc=api.AttnWindowDesc(num_chunks_in_sw=[-1]), policy=api.TrimPolicy.SPARSE,
            )
            answer = sm.submit_prefetch_task(spec).prefetch_request_id == 7
        sm._prefetch_controller = kept
        sm.close()
        return answer

    return {name: looked_up(name) for name in (LOCAL, QUERY, "")}

def check_peer():
    import threading
    from types import SimpleNamespace
    from lmcache.v1.multiprocess.modules.p2p_controller import P2PController
    from lmcache.v1 import transform_scope

    controller = P2PController.__new__(P2PController)
    released = []
    controller._ctx = SimpleNamespace(
        storage_manager=SimpleNamespace(
            submit_prefetch_task=lambda *a, **k: SimpleNamespace(
                l1_found_indices=(), total_requested_keys=1
            ),
            finish_read_prefetched=released.extend,
        )
    )
    controller._job_lock, controller._next_task_id, controller._jobs = threading.Lock(), 0, {}

    def tried(call, *arguments):
        try:
            call(*arguments)
            return "served"
        except ValueError as error:
            return str(error)

    keys = {"local": key(LOCAL), "query": key(QUERY), "plain": key("")}
    keys["global"] = key("g1" + "a" * 32)
    result = {n: tried(controller.p2p_lookup_and_lock, [k], {0: LAYOUT}) for n, k in keys.items()}
    result["unlock"] = tried(controller.p2p_unlock_objects, [keys["local"]])
    result["released"] = len(released)
    return result

def check_events():
    from lmcache.v1.distributed.api import L1BackendType
    from lmcache.v1.distributed.internal_api import L1ObjectMeta
    from lmcache.v1.mp_coordinator.cache_events import CacheEventSink, CacheEventSubscriber
    from lmcache.v1.mp_observability.event import Event, EventType

    class Sink(CacheEventSink):
        seen = []
        def publish(self, batches):
            self.seen += [(str(b.event_type), e.key.model_name) for b in batches for e in b.entries]

    keys = [key(LOCAL), key(QUERY), key("")]
    meta = [L1ObjectMeta(size_bytes=1, backend=L1BackendType.DRAM)] * 3
    events = CacheEventSubscriber(Sink(), "i", 1)
    for name in ("L1_WRITE_FINISHED", "L1_KEYS_ACCESSED", "L1_KEYS_EVICTED"):
        kind = EventType[name]
        handler = events.get_subscriptions()[kind]
        handler(Event(event_type=kind, metadata={"keys": keys, "meta": meta}))
    events.flush()
    return sorted({name for _, name in Sink.seen}) + [len(Sink.seen)]

def check_http():
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from lmcache.v1.multiprocess.http_api_registry import HTTPAPIRegistry

    class Manager:
        def end_lease(self, variant):
            if variant[:1] != "r":
                raise ValueError("no request-local variant")
            return 3
        def lease_status(self):
            return [{"leases": 1}]

    class Engine:
        storage_manager = Manager()

    app = FastAPI()
    HTTPAPIRegistry(app).register_all_apis()
    client = TestClient(app)
    answers = [client.delete("/transform/leases/r1x").status_code]
    app.state.engine = Engine()
    for answer in (
        client.delete("/transform/leases/r1x"), client.delete("/transform/leases/q1x"),
        client.get("/transform/leases"),
    ):
        answers.append([answer.status_code, answer.json()])
    return answers

def check_trace():
    from lmcache.v1.distributed import api
    from lmcache.v1.mp_observability.event import Event, EventType
    from lmcache.v1.mp_observability.trace.reader import TraceReader
    from lmcache.v1.mp_observability.trace.recorder import StorageTraceRecorder

    class Held:
        # A prefetch's argument: keys at some depth.
        def __init__(self, **held):
            self.__dict__.update(held)

    path = tempfile.mkdtemp() + "/trace"
    recorder = StorageTraceRecorder(path)
    for number, variant in enumerate(("", LOCAL, QUERY, OTHER)):
        for args in ({"keys": [key(variant)]}, {"keys": {key(variant)}, "n": number}):
            recorder._on_trace_call(Event(event_type=EventType.TRACE_CALL, metadata={
                "qualname": "q", "args": args, "t_mono": time.monotonic(),
            }))
    recorder.close()
    with TraceReader(path) as reader:
        records = [record.args["keys"] for record in reader.records()]
    from lmcache.v1 import transform_scope
    spec = Held(key_groups=[Held(keys=[key(QUERY)]), Held(keys=[key(LOCAL)])])
    plain = Held(key_groups=[Held(keys=[key("")])], layout_desc=LAYOUT)
    return {
        "names": [str(keys).count("##tv1-" + name) for keys in records for name in (QUERY, LOCAL)],
        "dropped": recorder._dropped_count,
        "file": (LOCAL in str(Path(path).read_bytes()), QUERY in str(Path(path).read_bytes())),
        "deep": [transform_scope.names_local({"spec": held}) for held in (spec, plain)],
    }

def check_names():
    from lmcache.v1.distributed.api import Tier
    from lmcache.v1.multiprocess.cache_control import errors, key_resolver, prefetch_service
    from lmcache.v1.multiprocess.token_hasher import TokenHasher

    hasher = TokenHasher(4, "blake3")

    def resolved(name):
        try:
            keys, chunks = key_resolver.resolve_object_keys(hasher, name, 1, list(range(8)), "")
            return [k.model_name for k in keys]
        except ValueError as error:
            return str(error)

    def fetched(name):
        try:
            # Whatever lies behind the first lines is not there.
            prefetch_service.PrefetchService(None).submit(name, 1, [], "", Tier.L2, Tier.L1)
        except errors.InvalidRequest as error:
            return str(error)
        except AttributeError:
            return "taken"

    names = ["m", *(key(v).model_name for v in (QUERY, LOCAL, "g1" + "a" * 32)), "m##tv1-q1short"]
    return [[resolved(name), fetched(name)] for name in names]

def check_scopes():
    from lmcache.v1.distributed import api
    from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey

    def made(variant):
        ipc = IPCCacheServerKey(
            model_name=key(variant).model_name, world_size=1, worker_id=0,
            token_ids=(1, 2), start=0, end=2, request_id="x",
        )
        try:
            [[found]] = api.ipc_key_to_object_keys(ipc, [b"h" * 32], [0])
        except ValueError as error:
            return "refused" if "does not take" in str(error) else str(error)
        if hasattr(api, "ipc_key_to_grouped_object_keys"):
            # Refused alike, so this may not raise here.
            window = api.AttnWindowDesc(num_chunks_in_sw=[-1])
            api.ipc_key_to_grouped_object_keys(ipc, [b"h" * 32], [0], {0: LAYOUT}, window)
        return found.model_name

    return {letter: made(letter and letter + "1" + "a" * 32) for letter in ["", *"rqpg"]}

def check_grouped():
    from lmcache.v1.distributed import api
    from types import SimpleNamespace
    if not hasattr(api, "ipc_key_to_grouped_object_keys"):
        return "absent"
    ipc = SimpleNamespace(model_name=key("g1" + "a" * 32).model_name)
    try:
        api.ipc_key_to_grouped_object_keys(ipc, [], [], {}, None)
    except ValueError as error:
        return str(error)

def check_narrow():
    os.environ["LMCACHE_TRANSFORM_SCOPES"] = "g"
    return check_scopes()

def check_settings():
    from lmcache.v1.transform_scope import Leases

    def started(name, text):
        os.environ[name] = text
        try:
            Leases()
            return "started"
        except ValueError as error:
            return str(error)
        finally:
            del os.environ[name]

    return [started("LMCACHE_TRANSFORM_SCOPES", "rx"), started("LMCACHE_TRANSFORM_SCOPES", "")] + [
        started("LMCACHE_TRANSFORM_LEASE_SECONDS", text)
        for text in ("0", "-1", "inf", "nan", "an hour", "0.5")
    ]

found = {}
before = dict(os.environ)
for name in NAMES:
    found[name] = globals()["check_" + name]()
    os.environ.clear()
    os.environ.update(before)
print(json.dumps(found))

"""


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched LMCache does, by the name of the check; one process, for its start is slow.

    `unfenced` is the check `l2` with this codemod left out.
    """
    lmcache.apply([IDENTITY, KEYS])
    unfenced = lmcache.run("NAMES = ['l2']" + CHECKS)["l2"]
    lmcache.apply([IDENTITY, KEYS, CODEMOD])
    every = "NAMES = [n[6:] for n in list(globals()) if n.startswith('check_')]"
    script = CHECKS.replace("\nfound = {}", f"\n{every}\nfound = {{}}")
    return lmcache.run(script) | {"unfenced": unfenced}


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY, KEYS)


def test_request_local_entries_end_with_their_lease(found: Any) -> None:
    lease = found["lease"]
    assert lease["written"] == 4
    assert lease["read"] == [True, True, True, True]
    assert (lease["deleted_in_use"], lease["in_use"]) == (0, [True])
    assert lease["read_after_end"] == [False]
    assert lease["after_use"] == [False, True, True, True]
    assert lease["late_write"] == 0
    assert (lease["deleted"], lease["after_end"]) == (1, [False, True, True])
    assert lease["unknown"] == [0, 0]
    assert "not request-local" in lease["refused"]
    assert lease["status"][0]["leases"] == lease["status"][0]["entries_to_delete"] == 0


def test_the_time_limit_ends_a_lease_whose_client_died(found: Any) -> None:
    assert found["limit"] == {
        "written": 3,
        "before": [True, True, True],
        "expired": [False, True, True],
        "present": [False, True, True],
    }


def test_request_local_entries_never_reach_l2(found: Any) -> None:
    assert found["unfenced"]["files"] == ["m", QUERY, LOCAL]
    assert found["l2"]["files"] == ["m", QUERY]


def test_l2_and_peers_are_not_asked_for_request_local_entries(found: Any) -> None:
    assert found["lookup"] == {"r1" + "a" * 32: False, "q1" + "b" * 32: True, "": True}


def test_a_peer_gets_no_request_local_entry(found: Any) -> None:
    peer = found["peer"]
    assert "stays on its server" in peer["local"]
    assert "does not take" in peer["global"]
    assert (peer["query"], peer["plain"]) == ("served", "served")
    assert "stays on its server" in peer["unlock"]
    assert peer["released"] == 0


def test_request_local_entries_are_not_reported(found: Any) -> None:
    assert found["events"] == ["m", QUERY, 6]


def test_a_trace_has_no_call_with_request_local_keys(found: Any) -> None:
    trace = found["trace"]
    # Two calls each of ordinary and of query-scoped keys.
    assert trace["names"] == [0, 0, 0, 0, 1, 0, 1, 0]
    assert trace["dropped"] == 0
    assert trace["file"] == [False, True]
    assert trace["deep"] == [True, False]


def test_a_request_by_tokens_names_no_request_local_entry(found: Any) -> None:
    ordinary, query, local, forbidden, malformed = found["names"]
    assert ordinary == [["m", "m"], "taken"]
    assert query == [[QUERY, QUERY], "taken"]
    for text in local:
        assert "is request-local and stays on its server" in text
    for text in forbidden:
        assert "a scope that this server does not take" in text
    for text in malformed:
        assert "malformed variant" in text


def test_a_scope_that_is_not_allowed_is_refused_before_keys_are_made(found: Any) -> None:
    names = {letter: f"m##tv1-{letter}1{'a' * 32}" for letter in "rqpg"}
    refused = dict.fromkeys("rqpg", "refused")
    assert found["scopes"] == {"": "m"} | refused | {x: names[x] for x in "rq"}
    assert found["narrow"] == {"": "m"} | refused | {"g": names["g"]}
    assert found["grouped"] == "absent" or "does not take" in found["grouped"]


def test_a_server_with_a_wrong_setting_does_not_start(found: Any) -> None:
    letters, none, *seconds, half = found["settings"]
    assert "r, q, p and g" in letters
    assert none == half == "started"
    assert all("positive number of seconds" in text for text in seconds)


def test_leases_end_over_http(found: Any) -> None:
    assert found["http"] == [
        503,
        [200, {"deleted": 3}],
        [400, {"error": "no request-local variant"}],
        [200, {"l1": [{"leases": 1}]}],
    ]
