# SPDX-License-Identifier: Apache-2.0
"""Stores that LMCache's own adapters wrote, then damaged by hand: fs, fs_native, resp and s3.

Runs in an engine environment with edited LMCache. What is asked of each server
is watched: an audit only reads. Tests add to the stores, so they stand in order.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit.classify import Found
from kvseal.audit.key_text import KeyText, write_fs, write_native
from kvseal.audit.payload import MAGIC, SEAL_BYTES
from kvseal.audit.run import audit
from kvseal.identity.variant import decorate
from kvseal.process import free_port

MODEL, RANK, SIZE = "org/model-1", 0x01000100, 8192
SALT = "tenant ü+a"


@pytest.fixture
def index(publish: Any, manifest: Any) -> Path:
    publish(manifest(), "")
    return publish(manifest(), SALT).parents[2]


def codes(document: dict[str, Any]) -> dict[str, int]:
    return {item["code"]: item["entries"] for item in document["findings"]}


def test_what_lmcache_wrote_is_in_order(live: Any, index: Path, variant: str) -> None:
    document = live.watched(lambda: audit([live.open()], index=index, strict=True))
    assert document["findings"] == []
    assert document["verdict"] == "PASS"
    assert document["classes"]["ordinary"] == {"entries": 3, "size_bytes": 3 * SIZE}
    assert document["classes"]["variant"] == {"entries": 2, "size_bytes": 2 * SIZE}
    models = {(group["model"], group["variant"]) for group in document["groups"]}
    assert models == {(MODEL, ""), (f"{MODEL}##query", ""), (MODEL, variant)}


def test_bytes_are_read_as_they_were_written(live: Any) -> None:
    store = live.open()
    whole = {}
    for found in store:
        pieces = [store.read(found, 0, 100), store.read(found, 100, SIZE)]
        whole[found.name] = b"".join(pieces)
        assert store.read(found, SIZE - 3, 3) == whole[found.name][-3:]
    assert sorted(data[0] for data in whole.values()) == [1, 2, 3, 4, 5]
    assert all(data == data[:1] * SIZE for data in whole.values())
    assert store.read(Found("gone", 1), 0, 1) == b"" or live.write is write_fs


def test_unsealed_objects_are_told_from_sealed_ones(live: Any, index: Path, variant: str) -> None:
    pytest.importorskip("blake3", reason="blake3: engine environment")
    document = live.watched(lambda: audit([live.open()], index=index, payload=True))
    assert codes(document) == {"suspicious.unsealed": 2}
    ordinary = KeyText(MODEL, RANK, 0, "15" * 32, "")
    live.put(live.write(ordinary), b"k" * (SIZE - SEAL_BYTES) + MAGIC.ljust(SEAL_BYTES, b"\0"))
    transformed = ordinary._replace(model_name=decorate(MODEL, variant))
    live.put(live.write(transformed), b"k" * (SIZE - SEAL_BYTES) + MAGIC.ljust(SEAL_BYTES, b"\0"))
    document = live.watched(lambda: audit([live.open()], index=index, payload=True))
    expected = {"suspicious.unsealed": 2, "forged.sealed-ordinary": 1, "damaged.payload": 1}
    assert codes(document) == expected


def test_what_is_added_by_hand_is_found(live: Any, index: Path, variant: str) -> None:
    before = codes(audit([live.open()], index=index))
    key = KeyText(MODEL, RANK, 0, "1f" * 32, "")
    written = live.write(key)
    unknown = "q1" + "a" * 32
    added = {
        "forged.request-local": f"##tv1-r{variant[1:]}",
        "forged.letter": f"##tv1-p{variant[1:]}",
        "forged.variant": f"##tv1-x{variant[1:]}",
        "forged.mark": f"##TV1-{variant}",
        "orphaned.no-manifest": f"##tv1-{unknown}",
    }
    for mark in added.values():
        live.put(live.write(key._replace(model_name=MODEL + mark)), b"k" * SIZE)
    other = key._replace(model_name=decorate(MODEL, variant), cache_salt="another")
    live.put(live.write(other), b"k" * SIZE)
    live.put(live.write(other._replace(cache_salt="##tv1")), b"k" * SIZE)
    live.put(written.replace("@0", "@00", 1), b"k" * SIZE)
    live.put(written, b"")
    live.put("notes", b"k")
    document = live.watched(lambda: audit([live.open()], index=index))
    new = {code: count - before.get(code, 0) for code, count in codes(document).items()}
    assert {code: count for code, count in new.items() if count} == {
        **dict.fromkeys(added, 1),
        "orphaned.other-tenant": 1,
        "forged.salt": 1,
        "damaged.key-text": 1,
        "damaged.empty": 1,
        "suspicious.unknown": 1,
    }
    assert document["verdict"] == "FAIL"


def test_a_prefix_shows_one_deployment(stores: dict[str, Any], index: Path) -> None:
    if "resp" not in stores:
        pytest.skip("no redis-server")
    live = stores["resp"]
    key = KeyText(MODEL, RANK, 0, "29" * 32, SALT)
    live.put(f"pr*d@{write_native(key)}", b"k" * SIZE)
    live.put(f"prod@{write_native(key)}", b"k" * SIZE)
    live.put("pr*d@notes", b"k")
    document = live.watched(lambda: audit([live.open("pr*d")], index=index))
    assert document["classes"]["ordinary"]["entries"] == 1
    assert codes(document) == {"suspicious.unknown": 1}


def test_other_types_of_values_and_many_keys(stores: dict[str, Any], index: Path) -> None:
    if "resp" not in stores:
        pytest.skip("no redis-server")
    import redis

    live = stores["resp"]
    port = int(live.open().name.rpartition(":")[2])
    client = redis.Redis(port=port)
    for place in range(3000):
        client.set(f"many@{MODEL}@01000100@0@{place:064x}", b"k")
    client.rpush(f"many@{MODEL}@01000100@0@ff", "k")
    client.rpush("many@list", "k")
    document = live.watched(lambda: audit([live.open("many")], index=index))
    assert document["classes"]["ordinary"]["entries"] == 3000
    assert codes(document) == {"damaged.type": 1, "suspicious.type": 1}


def test_a_server_that_is_not_there(index: Path) -> None:
    pytest.importorskip("redis", reason="redis: engine environment")
    from kvseal.audit.stores.resp import RespStore

    document = audit([RespStore(f"127.0.0.1:{free_port()}", "", {})], index=index)
    assert document["verdict"] == "INCONCLUSIVE"
    assert "can't be read" in document["sources"][0]["error"]


def test_a_password_is_taken_from_the_environment_and_never_shown(
    tmp_path: Path, run_server: Any
) -> None:
    pytest.importorskip("redis", reason="redis: engine environment")
    from kvseal.audit.stores.resp import RespStore

    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("no redis-server")
    port = free_port()
    command = (server, "--port", f"{port}", "--bind", "127.0.0.1", "--requirepass", "hunter2")
    with run_server(*command, port=port, cwd=tmp_path):
        wrong = audit([RespStore(f"127.0.0.1:{port}", "", {"LMCACHE_RESP_PASSWORD": "wrong"})])
        none = audit([RespStore(f"127.0.0.1:{port}", "", {})])
        right = audit([RespStore(f"127.0.0.1:{port}", "", {"LMCACHE_RESP_PASSWORD": "hunter2"})])
    assert wrong["sources"][0]["error"] and none["sources"][0]["error"]
    assert right["sources"][0]["error"] is None
    assert "hunter2" not in f"{wrong}{none}{right}"
