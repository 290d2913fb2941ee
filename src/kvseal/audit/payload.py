# SPDX-License-Identifier: Apache-2.0
"""The deep check: are the bytes of an entry those that were sealed under its key?

An edited LMCache stores an object of a variant with a seal behind its payload:
one page that begins with KVSEAL1 and a zero byte, then the payload's length (8
bytes, little-endian) and a BLAKE3 digest over the whole key and the payload; the
rest is zero. So bytes of another key, of another length or changed ones show,
and so does an object of a variant that lies under an ordinary key. Ordinary
objects have no seal: nothing is said of their bytes. Reads in pieces; needs the
package blake3, which LMCache brings. Called by kvseal.audit.run.

Source: src/kvseal/codemods/added/transform_seal.py, which writes the seal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvseal.audit.key_text import KeyText
from kvseal.errors import PrerequisiteError

MAGIC = b"KVSEAL1\0"
SEAL_BYTES = 4096
PIECE_BYTES = 4 << 20

Read = Callable[[int, int], bytes]
"""Returns the bytes of an entry from an offset on, fewer than asked for at its end."""


class SealCheck:
    """Checks one entry after the other.

    Raises:
        PrerequisiteError: blake3 is not installed.
    """

    def __init__(self) -> None:
        try:
            from blake3 import blake3
        except ImportError:
            raise PrerequisiteError(
                "seals can't be checked without the blake3 package",
                option="--payload",
                expected="a Python with the package blake3",
                remedy="run this with the engine environment's Python, where LMCache brought it",
            ) from None
        self._blake3: Any = blake3

    def trouble(self, key: KeyText, size_bytes: int, read: Read, *, transformed: bool) -> str:
        """Return "" or the code of what is wrong with an entry's bytes."""
        payload_bytes = size_bytes - SEAL_BYTES
        page = read(payload_bytes, SEAL_BYTES) if payload_bytes >= 0 else b""
        sealed = page.startswith(MAGIC)
        if not transformed:
            return "forged.sealed-ordinary" if sealed else ""
        if not sealed:
            return "suspicious.unsealed"
        return "" if page == self._seal(key, payload_bytes, read) else "damaged.payload"

    def _seal(self, key: KeyText, payload_bytes: int, read: Read) -> bytes:
        digest = self._blake3()
        parts = (
            MAGIC,
            key.model_name.encode(),
            str(key.kv_rank).encode(),
            str(key.object_group_id).encode(),
            bytes.fromhex(key.chunk_hash),
            key.cache_salt.encode(),
        )
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        place = 0
        while place < payload_bytes:
            piece = read(place, min(PIECE_BYTES, payload_bytes - place))
            if not piece:
                return b""
            digest.update(piece)
            place += len(piece)
        seal: bytes = MAGIC + payload_bytes.to_bytes(8, "little") + digest.digest()
        return seal.ljust(SEAL_BYTES, b"\0")
