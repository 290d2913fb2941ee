# SPDX-License-Identifier: Apache-2.0
"""One record of the variant index: for a recipe, the exact variants that were made of it.

A consumer knows the recipe before it has any KV: it asks the index which
variants exist, then asks the cache for one of them by its exact name. What
the index says is never a hit: it is a name to ask for, and the answer to that
question alone is a hit or a miss.

A record is trusted for nothing. Its checksum finds damage; against forgery,
which can bring a checksum of its own, each variant has to show its manifest:
the digest must be the one listed, and the recipe the one asked for. Whatever
does not fit is an error and not an absent entry, because somebody relied on
it. Holds data only; where records are kept is the storage's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvseal.canonical import canonical_bytes, digest, loads_strict
from kvseal.errors import EvidenceError
from kvseal.identity.fields import check_hex, closed_object, refused
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.variant import parse_variant, variant_of, variant_text

SCHEMA = "kvseal.variant-index.v1"
MAX_ENTRIES = 64
"""Variants that one recipe may have. More would mean a transform that is not deterministic."""
MAX_RECORD_BYTES = 16384

_FIELDS = ("schema", "recipe_sha256", "variants", "checksum_sha256")


@dataclass(frozen=True)
class Entry:
    """An exact variant, with the whole digest of its manifest."""

    variant: str
    manifest_sha256: str

    def __post_init__(self) -> None:
        check_hex(self.manifest_sha256, "variants[].manifest_sha256")
        scope = parse_variant(self.variant, at="variants[].variant").scope
        if self.variant != variant_text(scope, self.manifest_sha256):
            raise refused(
                "variant and manifest digest don't belong together",
                "variants[].variant",
                self.variant,
                variant_text(scope, self.manifest_sha256),
            )
        if scope == REQUEST_LOCAL:
            raise refused(
                "a request-local artifact is never listed for others",
                "variants[].variant",
                self.variant,
                "an artifact that more than one request may have",
            )


@dataclass(frozen=True)
class VariantRecord:
    """The variants of one recipe, sorted by manifest digest, none twice, all of one scope."""

    recipe_sha256: str
    variants: tuple[Entry, ...]

    def __post_init__(self) -> None:
        check_hex(self.recipe_sha256, "recipe_sha256")
        digests = [entry.manifest_sha256 for entry in self.variants]
        if not 1 <= len(digests) <= MAX_ENTRIES or digests != sorted(set(digests)):
            raise refused(
                "variants must be sorted by manifest digest, none twice",
                "variants",
                digests[: MAX_ENTRIES + 1],
                f"1 to {MAX_ENTRIES} of them",
            )
        # The scope is part of the recipe, so one recipe can't have two.
        if len({entry.variant[0] for entry in self.variants}) > 1:
            raise refused(
                "one recipe has one scope",
                "variants",
                [entry.variant for entry in self.variants],
                "variants with the same letter",
            )


def record_of(manifest: TransformManifest) -> VariantRecord:
    """Return the record that lists this manifest alone.

    Raises:
        EvidenceError: it is request-local.
        TransformError: its scope needs a proof that was not registered.
    """
    entry = Entry(variant_of(manifest), manifest.digest)
    return VariantRecord(manifest.recipe_digest, (entry,))


def add(record: VariantRecord, manifest: TransformManifest) -> VariantRecord:
    """Return `record` with the variant of `manifest` in it.

    Raises:
        EvidenceError: the manifest is of another recipe, or the record is full.
        TransformError: as `record_of`.
    """
    new = record_of(manifest)
    if new.recipe_sha256 != record.recipe_sha256:
        raise _another_recipe(new.recipe_sha256, record.recipe_sha256)
    entries = {entry.manifest_sha256: entry for entry in (*record.variants, *new.variants)}
    return VariantRecord(record.recipe_sha256, tuple(entries[name] for name in sorted(entries)))


def encode(record: VariantRecord) -> bytes:
    """Return the record as canonical JSON with its checksum."""
    body = _body(record)
    return canonical_bytes({**body, "checksum_sha256": digest(body)})


def decode(data: bytes) -> VariantRecord:
    """Read a record; the exact inverse of `encode`.

    Raises:
        EvidenceError: it is damaged, not canonical, or contradicts itself.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise refused("too long for a record", "record", len(data), f"at most {MAX_RECORD_BYTES}")
    value = closed_object(loads_strict(data), _FIELDS, "")
    if value["schema"] != SCHEMA:
        raise refused("record of another schema", "schema", value["schema"], SCHEMA)
    if type(value["variants"]) is not list:
        raise refused("field must be a list", "variants", value["variants"], "a list")
    record = VariantRecord(
        value["recipe_sha256"],
        tuple(
            Entry(**closed_object(entry, ("variant", "manifest_sha256"), "variants[]"))
            for entry in value["variants"]
        ),
    )
    if encode(record) != data:
        raise refused(
            "damaged record of the variant index",
            "checksum_sha256",
            value["checksum_sha256"],
            f"{digest(_body(record))}, in canonical JSON",
        )
    return record


def candidates(
    data: bytes, recipe_sha256: str, manifest_text: Callable[[str], bytes]
) -> list[TransformManifest]:
    """Return the manifests whose exact variants may be asked for, in the record's order.

    `data` is the record that was stored under `recipe_sha256`, `manifest_text`
    brings the stored manifest with a given digest. None of it is KV: ask the
    cache for `variant_of` each manifest, and store nothing under it.

    Raises:
        EvidenceError: record or manifest are damaged, or of another recipe.
        TransformError: a scope that its transform may not have.
    """
    record = decode(data)
    if record.recipe_sha256 != recipe_sha256:
        raise _another_recipe(record.recipe_sha256, recipe_sha256)
    found = []
    for entry in record.variants:
        manifest = TransformManifest.parse(manifest_text(entry.manifest_sha256))
        if manifest.digest != entry.manifest_sha256:
            raise refused(
                "the manifest is not the one listed",
                "variants[].manifest_sha256",
                manifest.digest,
                entry.manifest_sha256,
            )
        if manifest.recipe_digest != recipe_sha256:
            raise _another_recipe(manifest.recipe_digest, recipe_sha256)
        if variant_of(manifest) != entry.variant:
            raise refused(
                "listed with another scope than the manifest has",
                "variants[].variant",
                entry.variant,
                variant_of(manifest),
            )
        found.append(manifest)
    return found


def _body(record: VariantRecord) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "recipe_sha256": record.recipe_sha256,
        "variants": [
            {"variant": entry.variant, "manifest_sha256": entry.manifest_sha256}
            for entry in record.variants
        ],
    }


def _another_recipe(value: str, expected: str) -> EvidenceError:
    return refused("variant of another recipe", "recipe_sha256", value, expected)
