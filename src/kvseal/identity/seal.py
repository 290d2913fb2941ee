# SPDX-License-Identifier: Apache-2.0
"""Make the manifest of a transform's result, and the artifact of the two.

The one place where token IDs and positions become digests. Every input that
decides the KV has to be given; the scope is request-local unless another one
is asked for. Never looks into the KV and stores nothing. Called by transforms
and by drivers for the transforms that return no manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.errors import TransformError
from kvseal.identity.arrays import (
    EMPTY_SHA256,
    ArrayReader,
    nested_uint32_bytes,
    payload_sha256,
    source_sha256,
    uint32_bytes,
    uint32_values,
)
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.checks import check_positions
from kvseal.identity.fields import pairs
from kvseal.identity.manifest import LEGACY, TransformManifest
from kvseal.identity.parts import (
    DENSE,
    UNMOVED,
    UNSTATED,
    Algorithm,
    Format,
    PositionMap,
    Query,
    Retained,
    Source,
)
from kvseal.identity.scope import Scope, check_allowed, request_local


def seal(
    *,
    algorithm: Algorithm,
    parameters: Mapping[str, int | str],
    source_token_ids: Sequence[int],
    retained_positions: Any,
    format: Format,
    granularity: str = "all",
    position_rule: str = DENSE,
    new_positions: Any = None,
    logical_token_ids: Sequence[int] | None = None,
    query: Query | None = None,
    scope: Scope | None = None,
    source_variant: str = "",
    keys: Any = None,
    values: Any = None,
    packed: Any = None,
    digest_payload: ArrayReader | None = None,
) -> KVArtifact:
    """Return the artifact of a transform that says where its rows come from.

    source_token_ids: the complete prefix that the source KV was computed over.
    retained_positions: strictly increasing positions in it; for granularity
        `layer` a list of them a layer, for `layer_head` a list a layer and head.
    position_rule: `dense` (0, 1, 2 …), `unmoved`, or `explicit` with `new_positions`.
    logical_token_ids: the source's at the positions, unless layers or heads differ.
    source_variant: variant of the source if it was transformed itself.
    scope: None for request-local with a fresh nonce.
    digest_payload: given, the payload's digest goes into the manifest.

    Raises:
        TransformError: positions, IDs or arrays that can't be right, or a scope
            that the algorithm may not have.
        EvidenceError: a field of the manifest that can't be, by name.
    """
    rows = format.rows(granularity)
    retained = nested_uint32_bytes(retained_positions, rows, "retained_positions")
    count = len(retained) // 4
    for length in rows:
        count //= length
    if (new_positions is not None) != (position_rule not in (DENSE, UNMOVED)):
        raise TransformError(
            "new positions are given for the rule explicit, and for no other",
            option="new_positions",
            value=position_rule,
            expected="position_rule='explicit' with new_positions",
        )
    if position_rule == DENSE:
        new = uint32_bytes(range(count), "new_positions") * (len(retained) // 4 // max(count, 1))
    elif position_rule == UNMOVED:
        new = retained
    else:
        new = nested_uint32_bytes(new_positions, rows, "new_positions")
    ids = _logical(logical_token_ids, source_token_ids, retained, granularity)
    return _sealed(
        algorithm=algorithm,
        parameters=parameters,
        source=source_token_ids,
        source_variant=source_variant,
        retained=Retained(count, sha256_hex(retained), granularity),
        position_map=PositionMap(position_rule, sha256_hex(new)),
        query=query,
        form=format,
        scope=request_local() if scope is None else scope,
        ids=ids,
        positions=(retained, new),
        arrays={"keys": keys, "values": values, "packed": packed},
        digest_payload=digest_payload,
    )


def seal_legacy(
    kv: Any,
    token_ids: Sequence[int],
    *,
    source_token_ids: Sequence[int],
    format: Format,
    implementation: str,
    query: Query | None = None,
    source_variant: str = "",
) -> KVArtifact:
    """Return the artifact of a modifier that returned `(kv, token_ids)` and nothing else.

    Always request-local: what it did is not known, only to what. `kv` is packed
    as the cache server holds it; `implementation` says which code it was, as far
    as the caller knows.

    Raises:
        TransformError: `token_ids` are no token IDs.
        EvidenceError: a field of the manifest that can't be, by name.
    """
    ids = uint32_bytes(token_ids, "logical_token_ids")
    return _sealed(
        algorithm=Algorithm(LEGACY, 1, implementation),
        parameters={},
        source=source_token_ids,
        source_variant=source_variant,
        retained=Retained(len(ids) // 4, EMPTY_SHA256, "all"),
        position_map=PositionMap(UNSTATED, EMPTY_SHA256),
        query=query,
        form=format,
        scope=request_local(),
        ids=ids,
        positions=(b"", b""),
        arrays={"packed": kv},
        digest_payload=None,
    )


def _logical(
    given: Sequence[int] | None, source: Sequence[int], retained: bytes, granularity: str
) -> bytes:
    if given is not None:
        return uint32_bytes(given, "logical_token_ids")
    if granularity != "all":
        raise TransformError(
            "layers keep different tokens, so the rows need IDs of their own",
            option="logical_token_ids",
            expected="a token ID for each row",
        )
    try:
        return uint32_bytes([source[place] for place in uint32_values(retained)], "source")
    except IndexError:
        raise TransformError(
            "a retained position is not in the source",
            option="retained_positions",
            value=max(uint32_values(retained)),
            expected=f"below the {len(source)} source tokens",
        ) from None


def _sealed(
    *,
    algorithm: Algorithm,
    parameters: Mapping[str, int | str],
    source: Sequence[int],
    source_variant: str,
    retained: Retained,
    position_map: PositionMap,
    query: Query | None,
    form: Format,
    scope: Scope,
    ids: bytes,
    positions: tuple[bytes, bytes],
    arrays: Mapping[str, Any],
    digest_payload: ArrayReader | None,
) -> KVArtifact:
    check_allowed(scope.kind, algorithm.name, algorithm.version)
    present = {name: kv for name, kv in arrays.items() if kv is not None}
    manifest = TransformManifest(
        algorithm=algorithm,
        parameters=pairs(parameters, "parameters"),
        source=Source(source_sha256(source, source_variant), len(source), source_variant),
        retained=retained,
        position_map=position_map,
        query=query,
        format=form,
        logical_tokens_sha256=sha256_hex(ids),
        scope=scope,
        payload_sha256=(
            None if digest_payload is None else payload_sha256(present, digest_payload)
        ),
    )
    check_positions(manifest, *positions)
    return KVArtifact(manifest, tuple(uint32_values(ids)), *positions, **present)
