# SPDX-License-Identifier: Apache-2.0
"""Sealed objects on real LMCaches: its own storage manager, fs adapter and serializer wrapper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import lmcache_payload_seal, lmcache_transform_identity

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
CODEMOD = lmcache_payload_seal.CODEMOD
SOURCES = Path(__file__).parents[3] / "src"

CHECKS = """
import json, os, sys, tempfile, threading, time
from pathlib import Path
from types import SimpleNamespace
from lmcache.v1.distributed.api import ObjectKey
from kvseal.faults.tier import opened_tier

VARIANT, OTHER = "m##tv1-q1" + "b" * 32, "m##tv1-q1" + "c" * 32
SIZE = 8192

def key(index, model=VARIANT, salt="", rank=0x01000100):
    return ObjectKey(bytes([index] * 32), model, rank, 0, salt)

def payload(number, size=SIZE):
    return bytes((number * 7 + i // 64) % 256 for i in range(size))

def file_of(folder, key):
    salt = f"@{key.cache_salt}" if key.cache_salt else ""
    name = f"{key.model_name}@{key.kv_rank:#010x}@0@{key.chunk_hash.hex()}{salt}.data"
    [found] = Path(folder).rglob(name)
    return found

def opened(folder, **more):
    config = {"type": "fs", "base_path": str(folder)} | more
    return opened_tier(config, payload_bytes=SIZE, timeout_seconds=20)

def seal_status(tier):
    return tier.adapter.report_status().get("transform_payload_seal")

def used(tier):
    return tier.manager.report_status()["l1_manager"]["memory_used_bytes"]

def outcome(tier, stored, keys=None):
    keys = list(stored if keys is None else keys)
    tier.forget()
    return ["miss" if got is None else "right" if got == stored[k] else "WRONG"
            for k, got in zip(keys, tier.load(keys))]

def check_stored():
    folder = tempfile.mkdtemp()
    ordinary = {key(i, "m", "tenant"): payload(i) for i in range(3)}
    variants = {key(i): payload(10 + i) for i in range(3)}
    with opened(folder) as tier:
        successful = tier.store(variants | ordinary)
        pages = {}
        for k, data in variants.items():
            stored = file_of(folder, k).read_bytes()
            pages[k.chunk_hash.hex()[:2]] = [stored[:SIZE] == data, stored[SIZE:].hex()]
        ordinary_equal = [file_of(folder, k).read_bytes() == data for k, data in ordinary.items()]
        tier.forget()
        empty = used(tier)
        result = {
            "successful": all(successful), "ordinary_equal": ordinary_equal, "pages": pages,
            "variants": outcome(tier, variants), "ordinary": outcome(tier, ordinary),
            # One request with both: LMCache asks for one model at a time, an adapter may not.
            "mixed": outcome(tier, variants | ordinary), "status": seal_status(tier),
        }
        tier.forget()
        result["memory"] = [empty, used(tier)]
    return result

def check_golden():
    from blake3 import blake3
    folder = tempfile.mkdtemp()
    k = key(5, salt="tenant", rank=258)
    with opened(folder) as tier:
        tier.store({k: payload(1)})
    page = file_of(folder, k).read_bytes()[SIZE:]
    parts = [b"KVSEAL1\\0", VARIANT.encode(), b"258", b"0", bytes([5] * 32), b"tenant"]
    text = b"".join(len(part).to_bytes(8, "little") + part for part in parts) + payload(1)
    head = b"KVSEAL1\\0" + SIZE.to_bytes(8, "little") + blake3(text).digest()
    return page == head + bytes(4096 - len(head))

DAMAGE = {
    "none": lambda d, o: d,
    "first bit": lambda d, o: bytes([d[0] ^ 1]) + d[1:],
    "last bit": lambda d, o: d[:SIZE - 1] + bytes([d[SIZE - 1] ^ 128]) + d[SIZE:],
    "bit of the magic": lambda d, o: d[:SIZE] + bytes([d[SIZE] ^ 1]) + d[SIZE + 1:],
    "bit of the length": lambda d, o: d[:SIZE + 9] + bytes([d[SIZE + 9] ^ 1]) + d[SIZE + 10:],
    "bit of the digest": lambda d, o: d[:SIZE + 40] + bytes([d[SIZE + 40] ^ 1]) + d[SIZE + 41:],
    "bit of the rest": lambda d, o: d[:-1] + b"\\1",
    "one byte less": lambda d, o: d[:-1],
    "no seal": lambda d, o: d[:SIZE],
    "half": lambda d, o: d[:SIZE // 2],
    "empty": lambda d, o: b"",
    "zeros": lambda d, o: bytes(len(d)),
    "another chunk": lambda d, o: o["chunk"],
    "another variant": lambda d, o: o["variant"],
    "another tenant": lambda d, o: o["salt"],
    "another rank": lambda d, o: o["rank"],
    "ordinary bytes": lambda d, o: o["ordinary"] + bytes(4096),
}

def check_damage():
    folder, result = tempfile.mkdtemp(), {}
    with opened(folder) as tier:
        for number, (name, damage) in enumerate(DAMAGE.items()):
            first, middle, last = range(3 * number, 3 * number + 3)
            chunks = {key(i): payload(i) for i in (first, middle, last)}
            others = {"chunk": key(200 + number), "variant": key(middle, OTHER),
                      "salt": key(middle, salt="other"), "rank": key(middle, rank=0x02000201),
                      "ordinary": key(middle, "m")}
            tier.store(chunks | {k: payload(150 + i) for i, k in enumerate(others.values())})
            read = {n: file_of(folder, k).read_bytes() for n, k in others.items()}
            struck = file_of(folder, key(middle))
            struck.write_bytes(damage(struck.read_bytes(), read))
            before = seal_status(tier).get("refused", 0)
            result[name] = outcome(tier, chunks) + outcome(tier, chunks, [key(first)])
            result[name].append(seal_status(tier).get("refused", 0) - before)
    return result

def check_serializer():
    folder, secret = tempfile.mkdtemp(), Path(tempfile.mkdtemp()) / "secret"
    secret.write_bytes(os.urandom(32))
    chunks = {key(i): payload(i) for i in range(3)}
    plain = {key(i, "m"): payload(20 + i) for i in range(2)}
    with opened(folder, serde={"type": "aesgcm", "master_key_path": str(secret)}) as tier:
        tier.store(chunks)
        tier.store(plain)
        sizes = [file_of(folder, k).stat().st_size - SIZE for k in (key(0), key(0, "m"))]
        result = {"sizes": sizes, "before": outcome(tier, chunks),
                  "plain": outcome(tier, plain)}
        struck = file_of(folder, key(1))
        data = bytearray(struck.read_bytes())
        data[-1] ^= 1  # the seal's last byte: the serializer itself never sees it
        struck.write_bytes(data)
        result["after"], result["status"] = outcome(tier, chunks), seal_status(tier)
        tier.forget()
        result["used"] = used(tier)
    return result

def check_off():
    folder = tempfile.mkdtemp()
    sealed = {key(i): payload(i) for i in range(2)}
    unsealed = {key(i): payload(i) for i in range(5, 7)}
    with opened(folder) as tier:
        tier.store(sealed)
    os.environ["LMCACHE_TRANSFORM_PAYLOAD_SEAL"] = "off"
    with opened(folder) as tier:
        tier.store(unsealed)
        result = {"sizes": [file_of(folder, k).stat().st_size for k in unsealed],
                  "sealed": outcome(tier, sealed), "unsealed": outcome(tier, unsealed),
                  "status": seal_status(tier)}
    os.environ["LMCACHE_TRANSFORM_PAYLOAD_SEAL"] = "on"
    with opened(folder) as tier:
        result["on_again"] = outcome(tier, unsealed) + outcome(tier, sealed)
    os.environ["LMCACHE_TRANSFORM_PAYLOAD_SEAL"] = "maybe"
    try:
        with opened(folder) as tier:
            result["maybe"] = "started"
    except ValueError as error:
        result["maybe"] = str(error)
    return result

def check_damage_off():
    os.environ["LMCACHE_TRANSFORM_PAYLOAD_SEAL"] = "off"
    kept = dict(DAMAGE)
    for name in kept:
        if name not in ("none", "first bit", "half", "zeros", "another chunk"):
            del DAMAGE[name]
    return check_damage()

class Recorder:
    \"\"\"An adapter in memory that says what it was asked; each task ends at once.\"\"\"

    def __init__(self, fails=()):
        self.calls, self.kept, self.done, self.results = [], {}, {}, {}
        self.store_fd, self.load_fd = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        self.number, self.fails, self.closed = 0, fails, []

    get_store_event_fd = lambda self: self.store_fd
    get_load_event_fd = lambda self: self.load_fd

    def submit_store_task(self, keys, objects):
        from lmcache.v1.distributed.internal_api import L2StoreResult
        self.calls.append(("store", keys, objects))
        if "raise" in self.fails:
            raise OSError("no store today")
        self.kept |= {k: bytes(o.byte_array) for k, o in zip(keys, objects)}
        self.number += 1
        self.done[self.number] = L2StoreResult("store" not in self.fails, 7)
        os.eventfd_write(self.store_fd, 1)
        return self.number

    def pop_completed_store_tasks(self):
        done, self.done = self.done, {}
        return done

    def submit_load_task(self, keys, objects):
        from lmcache.lmcache_native import Bitmap
        self.calls.append(("load", keys, objects))
        if "raise" in self.fails:
            raise OSError("no load today")
        self.number += 1
        found = Bitmap(len(keys))
        for index, (k, o) in enumerate(zip(keys, objects)):
            if k in self.kept:
                memoryview(o.byte_array).cast("B")[:] = self.kept[k]
                found.set(index)
        self.results[self.number] = found
        os.eventfd_write(self.load_fd, 1)
        return self.number

    def query_load_result(self, number):
        return self.results.pop(number, None)

    def report_status(self):
        return {"is_healthy": True}

    def close(self):
        self.closed.append(threading.active_count())

class Manager:
    \"\"\"L1's memory, with so many buffers.\"\"\"

    def __init__(self, buffers=100):
        self._memory_manager, self.left = self, buffers

    def allocate(self, layout, count):
        from lmcache.v1.distributed.error import L1Error
        if count > self.left:
            return L1Error.OUT_OF_MEMORY, []
        self.left -= count
        return L1Error.SUCCESS, [memory(layout.shapes[0][0]) for _ in range(count)]

    def free(self, buffers):
        self.left += len(buffers)

def memory(size, data=None):
    import torch
    array = bytearray(data or size)
    return SimpleNamespace(byte_array=array, get_shapes=lambda: [torch.Size([size])],
                           get_dtypes=lambda: [torch.uint8])

def attached(recorder, manager, kind="fs"):
    from lmcache.v1 import transform_sealed_adapter
    from lmcache.v1.distributed.l2_adapters import config
    asked, config.get_type_name_for_config = config.get_type_name_for_config, lambda given: kind
    try:
        transform_sealed_adapter.attach(recorder, None, manager)
    finally:
        config.get_type_name_for_config = asked
    return recorder

def until(ask):
    for _ in range(500):
        answer = ask()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("no answer")

def threads():
    return sum("transform-seal" in t.name for t in threading.enumerate())

def check_ordinary_calls():
    recorder = attached(Recorder(), Manager())
    keys, objects = [key(1, "m"), key(2, "m")], [memory(SIZE, payload(i)) for i in range(2)]
    before = threads()
    number = recorder.submit_store_task(keys, objects)
    done = recorder.pop_completed_store_tasks()
    loaded = recorder.submit_load_task(keys, objects)
    bits = recorder.query_load_result(loaded).get_indices_list()
    same = all(call[1] is keys and call[2] is objects for call in recorder.calls)
    return [same, number in done, bits, before, threads(), len(recorder.calls)]

def check_parts():
    manager, recorder = Manager(), Recorder()
    attached(recorder, manager)
    keys = [key(1, "m"), key(1), key(2, "m"), key(2)]
    objects = [memory(SIZE, payload(i)) for i in range(4)]
    number = recorder.submit_store_task(keys, objects)
    stored = {}
    until(lambda: stored.update(recorder.pop_completed_store_tasks()) or number in stored)
    result = {"number": number, "sum": stored[number].bytes_transferred(),
              "others": len(stored) - 1,
              "calls": [[len(c[1]), sum(len(o.byte_array) for o in c[2])] for c in recorder.calls]}
    targets = [memory(SIZE) for _ in keys]
    loaded = recorder.submit_load_task(keys, targets)
    result["bits"] = until(lambda: recorder.query_load_result(loaded)).get_indices_list()
    result["equal"] = [bytes(a.byte_array) == bytes(b.byte_array) for a, b in zip(targets, objects)]
    result["once"] = recorder.query_load_result(loaded)
    del recorder.kept[key(1)]
    loaded = recorder.submit_load_task(keys, targets)
    result["one_lost"] = until(lambda: recorder.query_load_result(loaded)).get_indices_list()
    result["left"] = manager.left
    return result

def check_failures():
    result = {}
    for name, recorder, manager in (
        ("store", Recorder(["store"]), Manager()),
        ("raise", Recorder(["raise"]), Manager()),
        ("memory", Recorder(), Manager(1)),
    ):
        attached(recorder, manager)
        keys, objects = [key(1), key(2)], [memory(SIZE), memory(SIZE)]
        number = recorder.submit_store_task(keys, objects)
        stored = {}
        until(lambda: stored.update(recorder.pop_completed_store_tasks()) or stored)
        loaded = recorder.submit_load_task([key(7), key(8)], objects)
        bits = until(lambda: recorder.query_load_result(loaded) or
                     recorder.fails and [0] or None) if name == "store" else None
        if name != "store":
            os.eventfd_read(recorder.load_fd)
            bits = recorder.query_load_result(loaded)
        result[name] = [stored[number].is_successful(), bits.popcount(), manager.left]
    return result

def check_close():
    others, manager, recorder = set(threading.enumerate()), Manager(), Recorder()
    attached(recorder, manager)
    recorder.submit_store_task([key(1)], [memory(SIZE)])
    until(lambda: recorder.done)
    recorder.submit_load_task([key(1)], [memory(SIZE)])
    held = manager.left
    recorder.close()
    started = set(threading.enumerate()) - others
    return [held, len(recorder.closed), len(started), manager.left]

def check_peer():
    recorder = attached(Recorder(), Manager(), kind="p2p")
    status = recorder.report_status()["transform_payload_seal"]
    objects = [memory(SIZE)]
    recorder.submit_store_task([key(1)], objects)
    return [recorder.calls[0][2] is objects, status["enabled"], status["reason"]]

def check_signals():
    recorder = Recorder()
    recorder.load_fd = os.pipe()[0]
    try:
        attached(recorder, Manager())
    except ValueError as error:
        refused = str(error)
    os.environ["LMCACHE_TRANSFORM_PAYLOAD_SEAL"] = "off"
    return [refused, attached(recorder, Manager()).report_status()["is_healthy"]]

def check_reconfigurable():
    # The storage manager asks the adapter itself, or what a serializer wraps.
    result = []
    for more in ({}, {"serde": {"type": "aesgcm", "master_key_path": str(secret_file())}}):
        device = Path(tempfile.mkdtemp()) / "device"
        with device.open("wb") as file:
            file.truncate(64 << 20)
        config = {"type": "dax", "device_path": str(device), "max_dax_size_gb": 0.0625,
                  "slot_bytes": 1 << 20} | more
        with opened_tier(config, payload_bytes=SIZE) as tier:
            chunks = {key(1): payload(1), key(2): payload(2)}
            tier.store(chunks)
            asked = tier.manager.get_l2_adapter_reconfigure_status()
            result.append([asked["num_adapters"], *outcome(tier, chunks)])
    return result

def secret_file():
    path = Path(tempfile.mkdtemp()) / "secret"
    path.write_bytes(os.urandom(32))
    return path

def check_failed_load():
    folder = tempfile.mkdtemp()
    chunks = {key(i): payload(i) for i in range(2)}
    announced, readable = [], []
    with opened(folder) as tier:
        tier.store(chunks)
        tier.forget()
        os.truncate(file_of(folder, key(0)), 5)
        manager = tier.manager._l1_manager if hasattr(tier.manager, "_l1_manager") else next(
            iter(tier.manager._l1_managers_by_id.values()))
        [listener] = [x for x in manager._registered_listeners if "StoreListener" in str(type(x))]
        heard = listener.on_l1_keys_write_finished
        listener.on_l1_keys_write_finished = lambda keys: (announced.extend(keys), heard(keys))
        deleted = manager.delete

        def delete(keys, **more):
            # What another request for the same keys would find now.
            found = manager.reserve_read(keys)
            there = [k for k, (_, memory) in found.items() if memory is not None]
            manager.finish_read(there)
            readable.append(len(there))
            return deleted(keys, **more)

        manager.delete = delete
        missed = [got is None for got in tier.load(list(chunks))]
        time.sleep(0.5)  # the answer comes first
        del manager.delete
    return [missed, len(announced), sum(readable)]

def check_longer_in_s3():
    import ctypes
    from lmcache.v1.distributed.l2_adapters import s3_l2_adapter
    adapter = s3_l2_adapter.S3L2Adapter.__new__(s3_l2_adapter.S3L2Adapter)
    adapter._make_request = lambda *given: None
    adapter._s3_client = adapter._credentials_provider = adapter._region = None
    asked, s3_l2_adapter.s3.S3Request = s3_l2_adapter.s3.S3Request, lambda **given: given
    memory = (ctypes.c_ubyte * 24)()
    target = SimpleNamespace(data_ptr=ctypes.addressof(memory), get_size=lambda: 16)
    on_body = adapter._get_request("key", target)["on_body"]
    s3_l2_adapter.s3.S3Request = asked
    for chunk, offset in ((b"a" * 8, 0), (b"b" * 10, 8), (b"c" * 4, 18)):
        on_body(chunk=chunk, offset=offset)
    return bytes(memory).hex()

found = {}
before = dict(os.environ)
for name in NAMES:
    found[name] = globals()["check_" + name]()
    os.environ.clear()
    os.environ.update(before)
print(json.dumps(found))
"""


def run(lmcache: LMCacheCopy, names: str) -> Any:
    path = f"{lmcache.environment.site_packages}:{SOURCES}"
    script = CHECKS.replace("\nfound = {}", f"\nNAMES = {names}\nfound = {{}}")
    return lmcache.run(script, PYTHONPATH=path, LMCACHE_LOG_LEVEL="CRITICAL")


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched LMCache does, by the name of the check; one process, for its start is slow.

    `unfenced` has two of the checks without the codemod.
    """
    lmcache.apply([IDENTITY])
    unfenced = run(lmcache, "['failed_load', 'longer_in_s3']")
    lmcache.apply([IDENTITY, CODEMOD])
    every = run(lmcache, "[n[6:] for n in list(globals()) if n.startswith('check_')]")
    return every | {"unfenced": unfenced}


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY)


def test_variants_are_stored_with_a_page_and_ordinary_objects_as_they_are(found: Any) -> None:
    stored = found["stored"]
    assert stored["successful"]
    assert stored["ordinary_equal"] == [True] * 3
    assert [equal for equal, _ in stored["pages"].values()] == [True] * 3
    pages = [bytes.fromhex(page) for _, page in stored["pages"].values()]
    assert {len(page) for page in pages} == {4096}
    assert len({page[16:48] for page in pages}) == 3
    assert all(not any(page[48:]) for page in pages)


def test_the_page_is_as_it_is_described(found: Any) -> None:
    assert found["golden"] is True


def test_what_was_stored_is_found(found: Any) -> None:
    stored = found["stored"]
    assert stored["variants"] == stored["ordinary"] == ["right"] * 3
    assert stored["mixed"] == ["right"] * 6
    assert stored["status"] == {"enabled": True, "sealed": 3, "verified": 6, "refused": 0}
    assert stored["memory"] == [0, 0]


REFUSED = (
    "first bit", "last bit", "bit of the magic", "bit of the length", "bit of the digest",
    "bit of the rest", "zeros", "another chunk", "another variant", "another tenant",
    "another rank", "ordinary bytes",
)  # fmt: skip


def test_a_damaged_object_is_a_miss_and_so_is_what_follows(found: Any) -> None:
    damage = dict(found["damage"])
    assert damage.pop("none") == ["right", "right", "right", "right", 0]
    short = {name: damage.pop(name) for name in ("one byte less", "no seal", "half", "empty")}
    assert set(damage) == set(REFUSED)
    assert list(damage.values()) == [["right", "miss", "miss", "right", 1]] * len(REFUSED)
    # The adapter itself notices a file that is too short.
    assert list(short.values()) == [["right", "miss", "miss", "right", 0]] * 4


def test_without_seals_wrong_bytes_are_handed_on(found: Any) -> None:
    assert found["damage_off"] == {
        "none": ["right", "right", "right", "right", 0],
        "first bit": ["right", "WRONG", "right", "right", 0],
        "zeros": ["right", "WRONG", "right", "right", 0],
        "another chunk": ["right", "WRONG", "right", "right", 0],
        "half": ["right", "miss", "miss", "right", 0],
    }


def test_the_seal_is_over_serialized_bytes(found: Any) -> None:
    serializer = found["serializer"]
    sealed, plain = serializer["sizes"]
    assert sealed == plain + 4096
    assert serializer["before"] == ["right"] * 3
    assert serializer["plain"] == ["right"] * 2
    assert serializer["after"] == ["right", "miss", "miss"]
    assert serializer["status"]["refused"] == 1
    assert serializer["used"] == 0


def test_seals_can_be_left_out(found: Any) -> None:
    off = found["off"]
    assert off["sizes"] == [8192] * 2
    assert off["sealed"] == off["unsealed"] == ["right"] * 2
    assert off["status"] == {
        "enabled": False,
        "reason": "LMCACHE_TRANSFORM_PAYLOAD_SEAL is off",
    }
    assert off["on_again"] == ["miss", "miss", "right", "right"]
    assert "expected on or off" in off["maybe"]


def test_ordinary_tasks_are_the_adapter_s_own(found: Any) -> None:
    same, completed, bits, before, after, calls = found["ordinary_calls"]
    assert (same, completed, bits, calls) == (True, True, [0, 1], 2)
    assert after == before


def test_a_task_with_both_kinds_is_one_task(found: Any) -> None:
    parts = found["parts"]
    assert parts["number"] < 0
    assert (parts["sum"], parts["others"]) == (14, 0)
    assert parts["calls"] == [[2, 2 * 8192], [2, 2 * (8192 + 4096)]]
    assert parts["bits"] == [0, 1, 2, 3]
    assert parts["equal"] == [True] * 4
    assert parts["once"] is None
    assert parts["one_lost"] == [0, 2, 3]
    assert parts["left"] == 100


@pytest.mark.parametrize(("name", "left"), [("store", 100), ("raise", 100), ("memory", 1)])
def test_what_fails_is_reported_and_keeps_no_memory(found: Any, name: str, left: int) -> None:
    assert found["failures"][name] == [False, 0, left]


def test_closing_ends_threads_and_gives_memory_back(found: Any) -> None:
    held, closed, threads, left = found["close"]
    assert held < 100
    assert (closed, threads, left) == (1, 0, 100)


def test_a_peer_s_memory_has_no_seals(found: Any) -> None:
    assert found["peer"] == [True, False, "peers have no seals"]


def test_an_adapter_that_can_t_be_signalled_is_refused(found: Any) -> None:
    refused, healthy = found["signals"]
    assert "eventfd" in refused
    assert "LMCACHE_TRANSFORM_PAYLOAD_SEAL=off" in refused
    assert healthy


def test_an_adapter_keeps_what_else_it_can(found: Any) -> None:
    assert found["reconfigurable"] == [[1, "right", "right"]] * 2


def test_the_buffer_of_a_failed_load_can_t_be_read(found: Any, lmcache: LMCacheCopy) -> None:
    missed, announced, readable = found["failed_load"]
    assert (missed, announced, readable) == ([True, True], 0, 0)
    # Without it, the store controller (0.5.4) or any request may be the first to read.
    missed, announced, readable = found["unfenced"]["failed_load"]
    assert missed == [True, True]
    assert bool(announced or readable) == (lmcache.version != "0.5.6")


def test_a_longer_object_in_s3_stays_in_its_place(found: Any) -> None:
    beyond = "00" * 8
    assert found["longer_in_s3"] == "61" * 8 + "62" * 8 + beyond
    assert not found["unfenced"]["longer_in_s3"].endswith(beyond)
