# SPDX-License-Identifier: Apache-2.0
"""The record of the variant index: for a recipe, the manifests of the exact variants made of it.

A consumer knows the recipe before it has any KV: it asks the index which
variants exist, then asks the cache for one of them by its exact name. What
the index says is never a hit: it is a name to ask for, and the answer to that
question alone is a hit or a miss.

A record is trusted for nothing. Each variant stands in it with its manifest,
whose digest must be the one listed and whose recipe the one asked for, so
neither damage nor forgery can bring a name that its manifest does not have.
Whatever does not fit is an error and not an absent entry, because somebody
relied on it. Holds data only; the cache server keeps the entries, and makes a
record of them with the same bytes as `encode`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.canonical import canonical_bytes, loads_strict
from kvseal.errors import EvidenceError
from kvseal.identity.fields import check_hex, closed_object, refused
from kvseal.identity.manifest import MAX_BYTES, TransformManifest
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.variant import variant_of

SCHEMA = "kvseal.variant-index.v1"
MAX_ENTRIES = 64
"""Variants that one recipe may have. More would mean a transform that is not deterministic."""
MAX_RECORD_BYTES = MAX_ENTRIES * (MAX_BYTES + 128) + 256
"""Manifests of the greatest length, and what stands around them."""

_FIELDS = ("recipe_sha256", "schema", "variants")
_ENTRY_FIELDS = ("manifest", "manifest_sha256")


@dataclass(frozen=True)
class VariantRecord:
    """The manifests of one recipe, sorted by digest, none twice; empty where none is known."""

    recipe_sha256: str
    manifests: tuple[TransformManifest, ...]

    def __post_init__(self) -> None:
        check_hex(self.recipe_sha256, "recipe_sha256")
        digests = [manifest.digest for manifest in self.manifests]
        if len(digests) > MAX_ENTRIES or digests != sorted(set(digests)):
            raise refused(
                "variants must be sorted by manifest digest, none twice",
                "variants",
                digests[: MAX_ENTRIES + 1],
                f"at most {MAX_ENTRIES} of them",
            )
        for manifest in self.manifests:
            listed_variant(manifest)
            if manifest.recipe_digest != self.recipe_sha256:
                raise _another_recipe(manifest.recipe_digest, self.recipe_sha256)


def listed_variant(manifest: TransformManifest) -> str:
    """Return the variant text of a manifest that others may find.

    Raises:
        EvidenceError: it is request-local.
        TransformError: its scope needs a proof that was not registered.
    """
    if manifest.scope.kind == REQUEST_LOCAL:
        raise refused(
            "a request-local artifact is never listed for others",
            "scope.kind",
            manifest.scope.kind,
            "an artifact that more than one request may have",
        )
    return variant_of(manifest)


def encode(record: VariantRecord) -> bytes:
    """Return the record as canonical JSON."""
    return canonical_bytes(
        {
            "schema": SCHEMA,
            "recipe_sha256": record.recipe_sha256,
            "variants": [
                {"manifest": manifest.to_json(), "manifest_sha256": manifest.digest}
                for manifest in record.manifests
            ],
        }
    )


def decode(data: bytes) -> VariantRecord:
    """Read a record; the exact inverse of `encode`.

    Raises:
        EvidenceError: it is damaged, not canonical, or contradicts itself.
        TransformError: a scope that its transform may not have.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise refused("too long for a record", "record", len(data), f"at most {MAX_RECORD_BYTES}")
    value = closed_object(loads_strict(data), _FIELDS, "")
    if value["schema"] != SCHEMA:
        raise refused("record of another schema", "schema", value["schema"], SCHEMA)
    if type(value["variants"]) is not list:
        raise refused("field must be a list", "variants", value["variants"], "a list")
    record = VariantRecord(value["recipe_sha256"], tuple(map(_listed, value["variants"])))
    if encode(record) != data:
        raise refused("record in another form", "record", f"{len(data)} bytes", "canonical JSON")
    return record


def candidates(data: bytes, recipe_sha256: str) -> list[TransformManifest]:
    """Return the manifests whose exact variants may be asked for, in the record's order.

    `data` is the record that was got for `recipe_sha256`. None of it is KV: ask
    the cache for `variant_of` each manifest, and store nothing under it.

    Raises:
        EvidenceError: the record is damaged, forged, or of another recipe.
        TransformError: a scope that its transform may not have.
    """
    record = decode(data)
    if record.recipe_sha256 != recipe_sha256:
        raise _another_recipe(record.recipe_sha256, recipe_sha256)
    return list(record.manifests)


def _listed(value: Any) -> TransformManifest:
    entry = closed_object(value, _ENTRY_FIELDS, "variants[]")
    manifest = TransformManifest.from_json(entry["manifest"])
    if manifest.digest != entry["manifest_sha256"]:
        raise refused(
            "the manifest is not the one listed",
            "variants[].manifest_sha256",
            entry["manifest_sha256"],
            manifest.digest,
        )
    return manifest


def _another_recipe(value: str, expected: str) -> EvidenceError:
    return refused("variant of another recipe", "recipe_sha256", value, expected)
