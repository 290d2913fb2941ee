# SPDX-License-Identifier: Apache-2.0
"""The folder of a variant index, read as evidence: which variants have a manifest, for whom.

    <folder>/<SHA-256 of the cache salt>/<recipe digest>/<manifest digest>.json

Every manifest is verified before anything is known from it. What is not what
its name says becomes a finding and is never left out in silence. Opens files
for reading alone and follows no link; takes no lock, as no reader needs one.
Called by kvseal.audit.run. Format: docs/formats/variant-index.md.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from kvseal.canonical import sha256_hex
from kvseal.errors import EvidenceError, OptionError, StoreError
from kvseal.identity.manifest import MAX_BYTES, TransformManifest
from kvseal.identity.recipe import MAX_ENTRIES
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.variant import variant_text

LOCK_FILE = ".lock"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"([0-9a-f]{64})\.json")

Report = Callable[[str, str, int], None]
"""Called with code, place below the folder and size for what is not in order."""


@lru_cache(maxsize=65536)
def salt_sha256(cache_salt: str) -> str:
    """Return the digest that stands for a tenant; that of the empty text where there is none."""
    return sha256_hex(cache_salt.encode("utf-8", "surrogateescape"))


class VariantManifests:
    """Manifests that were verified, by the bits of their digest that a variant text holds."""

    def __init__(self) -> None:
        self.count = 0
        self._known: dict[str, set[tuple[str, str]]] = {}
        self._used: set[tuple[str, str]] = set()

    def add(self, manifest: TransformManifest, tenant: str) -> None:
        """Take a verified manifest in; `tenant` is the SHA-256 of its cache salt."""
        variant = variant_text(manifest.scope.kind, manifest.digest)
        self._known.setdefault(variant[1:], set()).add((tenant, variant[0]))
        self.count += 1

    def trouble(self, variant: str, cache_salt: str) -> str:
        """Return "" where the tenant has a manifest of `variant`, else the code that says why."""
        known = self._known.get(variant[1:], ())
        tenant = salt_sha256(cache_salt)
        if (tenant, variant[0]) in known:
            self._used.add((tenant, variant))
            return ""
        if any(letter == variant[0] for _, letter in known):
            return "orphaned.other-tenant"
        return "forged.letter" if known else "orphaned.no-manifest"

    @property
    def unused(self) -> int:
        """Manifests of which no entry was asked for so far."""
        return self.count - len(self._used)


def read_index(folder: Path, report: Report) -> VariantManifests:
    """Read a whole index; `report` hears of everything in it that is not in order.

    Raises:
        OptionError: there is no such folder.
        StoreError: it can't be read to its end.
    """
    if not folder.is_dir():
        raise OptionError(
            "there is no variant index",
            option="--index",
            value=str(folder),
            expected="the folder that LMCACHE_TRANSFORM_INDEX names",
            remedy="name it, or leave the option out; variants are then not judged",
        )
    manifests = VariantManifests()
    try:
        for tenant in _folders(folder, "", report):
            for recipe in _folders(folder, tenant, report):
                _read_recipe(folder, tenant, recipe, manifests, report)
    except OSError as error:
        raise StoreError(
            f"the variant index can't be read: {error.strerror}",
            option="--index",
            value=str(folder),
            expected="a folder that this user may read",
            remedy="run as a user that may read it",
        ) from None
    return manifests


def _folders(root: Path, place: str, report: Report) -> Iterator[str]:
    with os.scandir(root / place) as items:
        for item in items:
            if _DIGEST.fullmatch(item.name) and item.is_dir(follow_symlinks=False):
                yield item.name
            elif not _is_own(item.name):
                report("suspicious.index-file", _join(place, item.name), _size(item))


def _read_recipe(
    root: Path, tenant: str, recipe: str, manifests: VariantManifests, report: Report
) -> None:
    place = f"{tenant}/{recipe}"
    entries = 0
    with os.scandir(root / place) as items:
        for item in items:
            match = _ENTRY.fullmatch(item.name)
            if match is None or not item.is_file(follow_symlinks=False):
                if not _is_own(item.name):
                    report("suspicious.index-file", _join(place, item.name), _size(item))
                continue
            entries += 1
            data = _read(root / place / item.name)
            if data is None:  # deleted meanwhile
                continue
            manifest, code = _verified(data, recipe, match[1])
            if manifest is None:
                report(code, _join(place, item.name), len(data))
            else:
                manifests.add(manifest, tenant)
    if entries > MAX_ENTRIES:
        report("damaged.index-crowded", place, 0)


def _verified(data: bytes, recipe: str, digest: str) -> tuple[TransformManifest | None, str]:
    if sha256_hex(data) != digest:
        return None, "damaged.index-digest"
    try:
        manifest = TransformManifest.parse(data)
    except EvidenceError:
        return None, "damaged.index-manifest"
    if manifest.canonical_bytes != data:
        return None, "damaged.index-manifest"
    if manifest.recipe_digest != recipe:
        return None, "damaged.index-recipe"
    if manifest.scope.kind == REQUEST_LOCAL:
        return None, "forged.index-request-local"
    return manifest, ""


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return file.read(MAX_BYTES + 1)


def _is_own(name: str) -> bool:
    """The lock, and what a file system keeps for itself; half written entries are no such."""
    return name == LOCK_FILE or (name.startswith(".") and not name.endswith(".tmp"))


def _size(item: os.DirEntry[str]) -> int:
    try:
        return item.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name
