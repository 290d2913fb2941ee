# SPDX-License-Identifier: Apache-2.0
"""Token IDs and positions as bytes, and the digests that stand for them in a manifest.

A list is its entries as little-endian uint32, one after another; nested lists
of positions (a list a layer, or a list a layer and head) are written in row
order. The bytes stand beside a manifest, the digest in it. Knows no torch: a
list is anything with `tolist`, a KV array anything with `shape` and `dtype`,
and whoever has torch brings an ArrayReader. Called by the artifact, its
sealing and its checks.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kvseal.canonical import sha256_hex
from kvseal.errors import TransformError
from kvseal.identity.variant import parse_variant

EMPTY_SHA256 = sha256_hex(b"")
"""Digest of no positions at all: what a manifest holds where they are not stated."""


def uint32_bytes(values: Any, what: str) -> bytes:
    """Return a flat list of integers in 0 … 2^32-1 as little-endian uint32.

    Raises:
        TransformError: naming `what`.
    """
    values = values.tolist() if hasattr(values, "tolist") else values
    try:
        kinds = set(map(type, values))
        if bool in kinds:
            # A mask where positions belong would else pass as zeros and ones.
            raise TypeError("booleans are no integers here")
        packed = array("I", values if kinds <= {int} else map(operator.index, values))
    except (TypeError, OverflowError) as error:
        raise TransformError(
            f"{what} are no list of integers",
            option=what,
            value=str(error),
            expected="integers in 0 … 2^32-1",
        ) from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def uint32_values(data: bytes) -> Sequence[int]:
    """Return what `uint32_bytes` wrote."""
    values = array("I", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def nested_uint32_bytes(values: Any, shape: tuple[int, ...], what: str) -> bytes:
    """Return lists nested as `shape` in row order; the last axis may have any one length.

    `shape` holds the lengths of the outer axes: () for a flat list.

    Raises:
        TransformError: naming `what`, for another nesting, rows of several lengths or no integers.
    """
    values = values.tolist() if hasattr(values, "tolist") else values
    rows = [values]
    for length in shape:
        outer = rows
        rows = []
        for row in outer:
            if not isinstance(row, Sequence) or len(row) != length:
                raise _misshapen(what, shape)
            rows.extend(row)
    data = [uint32_bytes(row, what) for row in rows]
    if len({len(row) for row in data}) > 1:
        raise _misshapen(what, shape)
    return b"".join(data)


def _misshapen(what: str, shape: tuple[int, ...]) -> TransformError:
    return TransformError(
        f"{what} have another shape than their granularity says",
        option=what,
        expected=f"{' × '.join(map(str, shape))} lists of one length",
    )


def source_sha256(token_ids: Sequence[int], parent: str = "") -> str:
    """Return the digest of a source: its token IDs, then its variant if it was transformed itself.

    The bytes are the IDs as little-endian uint32, then `parent` as ASCII. They
    read in one way only: the IDs take a multiple of four bytes, a variant takes
    34, so the length tells whether there is one. Of an ordinary source it is the
    digest that run histories hold for token IDs.

    Raises:
        TransformError: IDs that are none.
        EvidenceError: `parent` is neither empty nor a variant text.
    """
    if parent != "":
        parse_variant(parent)
    return sha256_hex(uint32_bytes(token_ids, "source token IDs") + parent.encode("ascii"))


class ArrayReader(Protocol):
    """What only somebody with torch or numpy can say about an array of KV."""

    def is_finite(self, array: Any) -> bool:
        """Return whether no element is NaN or infinite."""

    def chunks(self, array: Any) -> Iterable[bytes]:
        """Yield the elements in row order, little-endian, a piece at a time."""


def dtype_name(array: Any) -> str:
    """Return an array's element type without its library: `torch.float16` → `float16`."""
    return str(array.dtype).rpartition(".")[2]


def payload_sha256(arrays: Mapping[str, Any], reader: ArrayReader) -> str:
    """Return the digest of KV: a line of name, dtype and shape before the bytes of each array.

    The line says how many bytes follow, so two payloads never read the same.
    """
    state = hashlib.sha256(b"kvseal.payload.v1\n")
    for name, kv in arrays.items():
        shape = "x".join(str(int(length)) for length in kv.shape)
        state.update(f"{name} {dtype_name(kv)} {shape}\n".encode())
        for chunk in reader.chunks(kv):
            state.update(chunk)
    return state.hexdigest()
