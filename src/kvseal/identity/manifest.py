# SPDX-License-Identifier: Apache-2.0
"""The transform manifest: every input that makes transformed KV what it is, in under 4 KiB.

Two artifacts with one manifest are interchangeable; that is all the manifest
says, and the reason that it has no field too few. Its canonical bytes are
RFC 8785 JSON. The manifest digest is over all of them, the recipe digest over
the inputs alone, which are known before the transform runs. A manifest that
contradicts itself does not come to be, whether read or made. Never holds KV,
token IDs, a time, a host or a tenant. Made by kvseal.identity.artifact.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from kvseal.canonical import canonical_bytes, digest, loads_strict, sha256_hex
from kvseal.identity.arrays import EMPTY_SHA256
from kvseal.identity.fields import (
    Pairs,
    check_hex,
    check_pairs,
    check_parameter,
    check_parts,
    closed_object,
    field_types,
    pairs,
    part_of,
    refused,
)
from kvseal.identity.parts import (
    UNMOVED,
    UNSTATED,
    Algorithm,
    Format,
    PositionMap,
    Query,
    Retained,
    Source,
)
from kvseal.identity.scope import GLOBAL, PREFIX, QUERY_SCOPED, REQUEST_LOCAL, Scope, is_wider
from kvseal.identity.variant import parse_variant

SCHEMA = "kvseal.transform-manifest.v1"
RECIPE_SCHEMA = "kvseal.transform-recipe.v1"
LEGACY = "legacy"
"""Name of the algorithm of an artifact that came without a manifest."""
MAX_BYTES = 4095
"""Longest canonical form: under 4 KiB."""
MAX_DOCUMENT_BYTES = 65536
"""Longest text that is parsed at all; room for any indentation."""

RECIPE_FIELDS = ("algorithm", "parameters", "source", "query", "format", "scope")

_T = TypeVar("_T")


@dataclass(frozen=True)
class TransformManifest:
    """One transform's identity; see docs/formats/transform-manifest.md.

    `parameters` are pairs sorted by name (kvseal.identity.pairs makes them of
    an object), with integers and text as values. `payload_sha256` is None where
    the payload was not digested.

    Raises:
        EvidenceError: naming the first field that is wrong, or contradicts another.
    """

    algorithm: Algorithm
    parameters: Pairs
    source: Source
    retained: Retained
    position_map: PositionMap
    query: Query | None
    format: Format
    logical_tokens_sha256: str
    scope: Scope
    payload_sha256: str | None = None

    def __post_init__(self) -> None:
        check_parts(self, "")
        check_pairs(self.parameters, "parameters")
        for name, value in self.parameters:
            check_parameter(value, f"parameters.{name}")
        check_hex(self.logical_tokens_sha256, "logical_tokens_sha256")
        if self.payload_sha256 is not None:
            check_hex(self.payload_sha256, "payload_sha256")
        _check_scope(self)
        _check_positions(self)
        if len(self.canonical_bytes) > MAX_BYTES:
            raise refused(
                "manifest too long",
                "manifest",
                f"{len(self.canonical_bytes)} bytes",
                f"at most {MAX_BYTES}; long values are bound by digest",
            )

    @cached_property
    def canonical_bytes(self) -> bytes:
        """RFC 8785 JSON of the whole manifest."""
        return canonical_bytes(self.to_json())

    @property
    def digest(self) -> str:
        """The manifest digest: SHA-256 of the canonical bytes, as hex."""
        return sha256_hex(self.canonical_bytes)

    @property
    def recipe_digest(self) -> str:
        """Digest of what is known before the transform runs: RECIPE_FIELDS under their own schema.

        Not in it are `retained`, `position_map`, `logical_tokens_sha256` and
        `payload_sha256`, which the transform finds out. Algorithm and
        parameters decide granularity and position rule, so a recipe loses
        nothing by leaving them with the result that they describe.
        """
        whole = self.to_json()
        return digest({"schema": RECIPE_SCHEMA, **{name: whole[name] for name in RECIPE_FIELDS}})

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as plain JSON values, `schema` first."""
        return {"schema": SCHEMA, **_plain(self)}

    @classmethod
    def from_json(cls, value: Any) -> TransformManifest:
        """Build a manifest from parsed JSON.

        Raises:
            EvidenceError: naming the first field that is unknown, missing, mistyped or wrong.
        """
        closed_object(value, ("schema", *field_types(cls)), "")
        if value["schema"] != SCHEMA:
            raise refused("manifest of another schema", "schema", value["schema"], SCHEMA)
        return _read(cls, {name: item for name, item in value.items() if name != "schema"}, "")

    @classmethod
    def parse(cls, text: str | bytes) -> TransformManifest:
        """Read a manifest from JSON text in any order of keys.

        Raises:
            EvidenceError: as `from_json`; for what is no JSON, repeats a key, or is too long.
        """
        if len(text) > MAX_DOCUMENT_BYTES:
            raise refused(
                "too long for a manifest", "manifest", len(text), f"at most {MAX_DOCUMENT_BYTES}"
            )
        return cls.from_json(loads_strict(text))


def _check_scope(manifest: TransformManifest) -> None:
    scope, query, source = manifest.scope, manifest.query, manifest.source
    if scope.kind == QUERY_SCOPED and (query is None or scope.binding != query.digest):
        raise refused(
            "a query-scoped artifact is bound to its query",
            "scope.binding",
            scope.binding,
            "query.digest, and a query",
        )
    if scope.kind in (PREFIX, GLOBAL) and query is not None:
        raise refused(
            f"an artifact of scope {scope.kind} does not depend on a query",
            "query",
            query.digest,
            "null, or a scope that binds the query",
        )
    if scope.kind == PREFIX and scope.binding != source.prefix_sha256:
        raise refused(
            "a prefix artifact is bound to its source",
            "scope.binding",
            scope.binding,
            "source.prefix_sha256",
        )
    if source.parent and is_wider(scope.kind, parse_variant(source.parent).scope):
        raise refused(
            "an artifact can't be shared more widely than the one it was made of",
            "scope.kind",
            scope.kind,
            f"{parse_variant(source.parent).scope} or narrower, as source.parent",
        )


def _check_positions(manifest: TransformManifest) -> None:
    retained, moved = manifest.retained, manifest.position_map
    digests = {retained.positions_sha256, moved.new_positions_sha256}
    if (moved.rule == UNSTATED) != (EMPTY_SHA256 in digests) or (
        moved.rule in (UNSTATED, UNMOVED) and len(digests) > 1
    ):
        raise refused(
            "position rule and position digests contradict each other",
            "position_map.rule",
            moved.rule,
            "unstated with both digests of nothing; unmoved with twice the same",
        )
    legacy = manifest.algorithm.name == LEGACY
    if legacy and moved.rule != UNSTATED:
        raise refused("a legacy artifact states no positions", "position_map.rule", moved.rule,
                      UNSTATED)  # fmt: skip
    if moved.rule == UNSTATED and manifest.scope.kind != REQUEST_LOCAL:
        raise refused(
            "what does not say where its rows come from can't be shared",
            "scope.kind",
            manifest.scope.kind,
            REQUEST_LOCAL,
        )
    if moved.rule != UNSTATED and retained.count > manifest.source.tokens:
        raise refused(
            "more tokens are retained than there were",
            "retained.count",
            retained.count,
            f"at most source.tokens, {manifest.source.tokens}",
        )


def _read(kind: type[_T], value: Any, at: str) -> _T:
    hints = field_types(kind)
    closed_object(value, hints, at)
    return kind(
        **{
            name: _field(hint, value[name], f"{at}.{name}".lstrip("."))
            for name, hint in hints.items()
        }
    )


def _field(hint: Any, value: Any, at: str) -> Any:
    part = part_of(hint)
    if part is not None and (value is not None or hint is part):
        return _read(part, value, at)
    return pairs(value, at) if hint == Pairs else value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in field_types(type(value))}
    return value
