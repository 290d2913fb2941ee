# SPDX-License-Identifier: Apache-2.0
"""Seals of transformed KV in L2, added by kvseal: whether bytes are what was stored under a key.

An object of a variant is stored one page longer than its payload. The page holds
`KVSEAL1\\0`, the payload's length (8 bytes, little-endian) and a BLAKE3 digest
over the whole key and the payload; the rest is zero. The digest reads, each with
its length in 8 bytes in front: the eight bytes above, the model name with its
mark, the rank and the object group in decimal, the chunk hash and the salt; then
the payload.

A page, though 48 bytes are in use, because what was aligned for direct I/O or a
device stays so. Behind the payload, because a server without seals then reads the
payload where it always was. In the object and not beside it, because no write
can leave one without the other. `LMCACHE_TRANSFORM_PAYLOAD_SEAL=off` ends making
and checking alike. `transform_seal_stores` and `transform_seal_loads` use this.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from blake3 import blake3

VARIABLE = "LMCACHE_TRANSFORM_PAYLOAD_SEAL"
MAGIC = b"KVSEAL1\0"
SEAL_BYTES = 4096


def enabled() -> bool:
    """Return whether this server seals and checks payloads."""
    text = os.environ.get(VARIABLE, "on")
    if text not in ("on", "off"):
        raise ValueError(f"{VARIABLE}={text!r}, expected on or off")
    return text == "on"


def seal(key: Any, payload: Any) -> bytes:
    """Return the page that stands behind `payload` (a buffer of bytes) in the object of `key`."""
    digest = blake3()
    name, salt = key.model_name.encode(), key.cache_salt.encode()
    rank, group = str(key.kv_rank).encode(), str(key.object_group_id).encode()
    for part in (MAGIC, name, rank, group, key.chunk_hash, salt):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    digest.update(payload)
    page = MAGIC + len(payload).to_bytes(8, "little") + digest.digest()
    return page.ljust(SEAL_BYTES, b"\0")


def payload_bytes(memory: Any) -> int:
    """Return the size of `memory` by its layout: a serializer may have filled only part of it."""
    layout = zip(memory.get_shapes(), memory.get_dtypes(), strict=True)
    return sum(shape.numel() * dtype.itemsize for shape, dtype in layout)


def write_sealed(key: Any, source: Any, buffer: Any) -> None:
    """Copy the payload of `source` into `buffer`, which is a page longer, and its seal behind."""
    given, target = _as_bytes(source), _as_bytes(buffer)
    size = len(target) - SEAL_BYTES
    target[: len(given)].copy_(given)
    target[len(given) : size].zero_()
    page = bytearray(seal(key, memoryview(target[:size].numpy())))
    target[size:].copy_(torch.frombuffer(page, dtype=torch.uint8))


def read_sealed(key: Any, buffer: Any, target: Any) -> bool:
    """Copy the payload in `buffer` to `target` if its seal is that of `key`; return whether."""
    loaded = _as_bytes(buffer)
    payload, found = loaded[:-SEAL_BYTES], loaded[-SEAL_BYTES:].numpy().tobytes()
    if not found.startswith(MAGIC) or found != seal(key, memoryview(payload.numpy())):
        return False
    _as_bytes(target).copy_(payload)
    return True


def _as_bytes(memory: Any) -> torch.Tensor:
    return torch.frombuffer(memoryview(memory.byte_array).cast("B"), dtype=torch.uint8)
