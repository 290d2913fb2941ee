# SPDX-License-Identifier: Apache-2.0
"""Seals: bytes of another key, changed or cut off are found; so is a variant under another name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit import payload as payload_module
from kvseal.audit.key_text import KeyText, write_fs
from kvseal.audit.payload import MAGIC, SEAL_BYTES, SealCheck
from kvseal.audit.run import audit
from kvseal.audit.stores.fs import FolderStore
from kvseal.audit.text import console

pytest.importorskip("blake3", reason="blake3: engine environment")

VARIANT = "q1abcdefghijklmnopqrstuvwxyz234567"
KEY = KeyText(f"org/m##tv1-{VARIANT}", 0x01000100, 2, "ab" * 32, "tenant ü")
PAYLOAD = bytes(range(251)) * 60


def sealed(key: KeyText, payload: bytes = PAYLOAD) -> bytes:
    """Return an object as the format of the seal describes it, made without the audit."""
    from blake3 import blake3

    digest = blake3()
    name, salt = key.model_name.encode(), key.cache_salt.encode()
    rank, group = str(key.kv_rank).encode(), str(key.object_group_id).encode()
    for part in (MAGIC, name, rank, group, bytes.fromhex(key.chunk_hash), salt):
        digest.update(len(part).to_bytes(8, "little") + part)
    digest.update(payload)
    page = MAGIC + len(payload).to_bytes(8, "little") + digest.digest()
    return payload + page.ljust(SEAL_BYTES, b"\0")


def trouble(data: bytes, key: KeyText = KEY, *, transformed: bool = True) -> str:
    def read(offset: int, size: int) -> bytes:
        assert offset >= 0
        return data[offset : offset + size]

    return SealCheck().trouble(key, len(data), read, transformed=transformed)


@pytest.fixture(params=[1, 4096, 4 << 20])
def piece_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "PIECE_BYTES", request.param)


def test_a_sealed_object_is_in_order(piece_bytes: None) -> None:
    assert trouble(sealed(KEY)) == ""
    assert trouble(sealed(KEY, b"")) == ""


def test_the_seal_is_the_one_that_servers_write() -> None:
    theirs = pytest.importorskip(
        "kvseal.codemods.added.transform_seal", reason="torch: engine environment"
    )

    class Key:
        model_name, cache_salt, kv_rank = KEY.model_name, KEY.cache_salt, KEY.kv_rank
        object_group_id, chunk_hash = KEY.object_group_id, bytes.fromhex(KEY.chunk_hash)

    assert (theirs.MAGIC, theirs.SEAL_BYTES) == (MAGIC, SEAL_BYTES)
    assert trouble(PAYLOAD + theirs.seal(Key, PAYLOAD)) == ""


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:9000] + bytes([data[9000] ^ 128]) + data[9001:],
        lambda data: data[1:],
        lambda data: b"\0" + data,
        lambda data: data[:-1] + b"\1",
        lambda data: data[: len(PAYLOAD) + 8] + b"\0" * 8 + data[len(PAYLOAD) + 16 :],
    ],
)
def test_changed_bytes_are_found(damage: Callable[[bytes], bytes]) -> None:
    assert trouble(damage(sealed(KEY))) == "damaged.payload"


@pytest.mark.parametrize(
    "other",
    [
        {"model_name": "org/m##tv1-" + VARIANT.replace("a", "b")},
        {"model_name": f"org/n##tv1-{VARIANT}"},
        {"kv_rank": 0x02000100},
        {"object_group_id": 3},
        {"chunk_hash": "ac" * 32},
        {"cache_salt": ""},
        {"cache_salt": "tenant"},
    ],
)
def test_the_object_of_another_key_is_found(other: dict[str, Any]) -> None:
    assert trouble(sealed(KEY._replace(**other))) == "damaged.payload"


@pytest.mark.parametrize("data", [PAYLOAD, b"", b"x" * SEAL_BYTES, sealed(KEY)[:-1]])
def test_an_object_without_a_seal_is_said_to_have_none(data: bytes) -> None:
    assert trouble(data) == "suspicious.unsealed"


def test_ordinary_objects_have_no_seal() -> None:
    ordinary = KEY._replace(model_name="org/m")
    assert trouble(PAYLOAD, ordinary, transformed=False) == ""
    assert trouble(sealed(KEY), ordinary, transformed=False) == "forged.sealed-ordinary"


def test_an_object_that_shrinks_meanwhile_is_damaged() -> None:
    data = sealed(KEY)

    def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size] if offset >= len(PAYLOAD) else b""

    check = SealCheck()
    assert check.trouble(KEY, len(data), read, transformed=True) == "damaged.payload"


def test_a_folder_is_checked_entry_by_entry(tmp_path: Path) -> None:
    keys = [KEY._replace(chunk_hash=f"{place:064x}") for place in range(4)]
    ordinary = KEY._replace(model_name="org/m")
    objects = {
        keys[0]: sealed(keys[0]),
        keys[1]: sealed(keys[0]),
        keys[2]: PAYLOAD,
        ordinary: sealed(keys[3]),
        ordinary._replace(cache_salt=""): PAYLOAD,
    }
    for key, data in objects.items():
        (tmp_path / write_fs(key)).write_bytes(data)
    document = audit([FolderStore(tmp_path)], payload=True)
    assert document["payload_checked"] is True
    assert "seals of variants checked" in console(document)
    found = {item["code"]: item["entries"] for item in document["findings"]}
    sizes = found.pop("suspicious.size")
    assert found == {"forged.sealed-ordinary": 1, "damaged.payload": 1, "suspicious.unsealed": 1}
    assert sizes == 1  # the one without a seal; what is damaged or forged is not compared
    assert document["classes"]["unjudged"]["entries"] == 2
    assert document["classes"]["damaged"]["entries"] == 1
