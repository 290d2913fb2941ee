# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON bytes (RFC 8785) and SHA-256 over them.

Identity rests on these bytes, so what RFC 8785 leaves to trust is refused
here: floats (two writers may print one number in two ways), integers beyond
2^53-1 (a JSON reader may round them), lone surrogates and duplicate keys.
What remains of the standard is the order of keys, by UTF-16 code units, and
the shortest escapes, which are the ones Python's json writes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from kvseal.errors import EvidenceError

MAX_SAFE_INTEGER = 2**53 - 1
"""Largest integer every JSON reader keeps exact. Source: RFC 8785, section 3.2.2.3."""


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 encoding of `value` as UTF-8.

    `value` may hold dicts with text keys, lists, tuples, text, integers,
    booleans and None.

    Raises:
        EvidenceError: for a float, an integer outside ±(2^53-1), a key that is
            not text, text that is not valid Unicode, or any other type.
    """
    try:
        return _encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise EvidenceError(
            "text with a lone surrogate has no canonical form", value=error.object
        ) from None


def _encode(value: Any) -> str:
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) > MAX_SAFE_INTEGER:
            raise EvidenceError(
                "integer too large for canonical JSON",
                value=value,
                expected=f"at most {MAX_SAFE_INTEGER} in size; write larger ones as text",
            )
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_encode(item) for item in value) + "]"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise EvidenceError("a key of canonical JSON must be text", value=key)
        ordered = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_encode(key)}:{_encode(value[key])}" for key in ordered) + "}"
    raise EvidenceError(
        f"{type(value).__name__} has no canonical JSON form",
        value=value,
        expected="text, integer, boolean, null, list or object; write a ratio as an integer "
        "percent or as decimal text",
    )


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 lowercase hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes of `value`, as lowercase hex."""
    return sha256_hex(canonical_bytes(value))


def token_ids_sha256(token_ids: list[int]) -> str:
    """Return the digest of a token ID or position list: SHA-256 over little-endian uint32.

    Raises:
        EvidenceError: when an entry is not in 0 … 2^32-1.
    """
    try:
        data = struct.pack(f"<{len(token_ids)}I", *token_ids)
    except (struct.error, TypeError) as error:
        raise EvidenceError(
            "token IDs and positions must be integers in 0 … 2^32-1", value=str(error)
        ) from None
    return sha256_hex(data)


def loads_strict(text: str | bytes) -> Any:
    """Parse JSON, refusing duplicate keys and the non-JSON constants NaN and Infinity.

    Raises:
        EvidenceError: when `text` is not such JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"not valid JSON: {error}") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise EvidenceError("duplicate key in JSON", value=", ".join(twice))
    return result


def _no_constant(name: str) -> Any:
    raise EvidenceError("not a JSON number", value=name)
