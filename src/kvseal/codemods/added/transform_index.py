# SPDX-License-Identifier: Apache-2.0
"""Variant index, added by kvseal: which exact variants of transformed KV exist for a recipe.

An entry is a manifest, byte for byte, under its digest, its recipe's digest and
the SHA-256 of a cache salt. It is a name to ask the cache for and never KV: no
lookup of KV comes here, and whoever takes an entry checks it again. With
`LMCACHE_TRANSFORM_INDEX` set to a folder, entries survive a restart and servers
may share them; without it they end with this process, as L1 does. `kvseal` is
not needed where this is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from lmcache.v1.transform_index_store import (
    MAX_ENTRY_BYTES,
    FolderEntries,
    MemoryEntries,
    RefusedError,
)

VARIABLE = "LMCACHE_TRANSFORM_INDEX"
SCHEMA = "kvseal.variant-index.v1"
MANIFEST_SCHEMA = "kvseal.transform-manifest.v1"
RECIPE_SCHEMA = "kvseal.transform-recipe.v1"
RECIPE_FIELDS = ("algorithm", "parameters", "source", "query", "format", "scope")
LETTERS = {"request-local": "r", "query-scoped": "q", "prefix": "p", "global": "g"}

MAX_ENTRIES = 64
"""Variants of one recipe; more would mean a transform that is not deterministic."""
MAX_TOTAL = 65536
"""Entries over all recipes and salts, as far as this server has counted: 256 MiB at most."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


def allowed_scopes() -> str:
    """Return the scope letters that this server takes."""
    try:
        from lmcache.v1 import transform_scope
    except ImportError:  # scopes are not enforced here
        return "rqpg"
    letters: str = transform_scope.allowed_scopes()
    return letters


class Index:
    """What the HTTP endpoints do, given the three digests of a path."""

    def __init__(self, entries: MemoryEntries | FolderEntries) -> None:
        self._entries = entries
        self._counted: int | None = None

    @classmethod
    def of_environment(cls) -> Index:
        """Return the index that the variable asks for."""
        text = os.environ.get(VARIABLE, "")
        if not text:
            return cls(MemoryEntries())
        if not Path(text).is_absolute() or (Path(text).exists() and not Path(text).is_dir()):
            raise ValueError(f"{VARIABLE}={text!r}, expected the absolute path of a folder")
        return cls(FolderEntries(Path(text)))

    def publish(self, salt: str, recipe: str, digest: str, data: bytes) -> dict[str, Any]:
        """Add an entry, or write it anew; answer how many the recipe has."""
        _check_digests(cache_salt_sha256=salt, recipe_sha256=recipe, manifest_sha256=digest)
        check_manifest(recipe, digest, data)
        with self._entries.locked():
            known = set(self._entries.names(salt, recipe))
            if digest not in known:
                if len(known) >= MAX_ENTRIES:
                    text = f"recipe {recipe} has {len(known)} variants already; delete one"
                    raise RefusedError(409, text)
                self._make_room()
            self._entries.write(salt, recipe, digest, data)
            if digest not in known and self._counted is not None:
                self._counted += 1
        return {"entries": len(known | {digest}), "manifest_sha256": digest}

    def find(self, salt: str, recipe: str) -> bytes:
        """Return the record of a recipe: all of its manifests, in RFC 8785 form."""
        _check_digests(cache_salt_sha256=salt, recipe_sha256=recipe)
        names = self._entries.names(salt, recipe)
        if len(names) > MAX_ENTRIES:
            raise RefusedError(500, f"recipe {recipe} has {len(names)} entries, not {MAX_ENTRIES}")
        variants = []
        for digest in names:
            data = self._entries.read(salt, recipe, digest)
            if data is None:  # deleted meanwhile
                continue
            found = hashlib.sha256(data).hexdigest()
            if found != digest:
                text = f"recipe {recipe}: entry {digest} is damaged, its bytes have digest {found}"
                raise RefusedError(500, f"{text}; delete it, or publish it again")
            variants.append(b'{"manifest":%b,"manifest_sha256":"%b"}' % (data, digest.encode()))
        return b'{"recipe_sha256":"%b","schema":"%b","variants":[%b]}' % (
            recipe.encode(),
            SCHEMA.encode(),
            b",".join(variants),
        )

    def remove(self, salt: str, recipe: str, digest: str) -> dict[str, Any]:
        """Take an entry away, a damaged one too; answer whether there was one."""
        _check_digests(cache_salt_sha256=salt, recipe_sha256=recipe, manifest_sha256=digest)
        with self._entries.locked():
            removed = self._entries.remove(salt, recipe, digest)
        return {"deleted": int(removed)}

    def _make_room(self) -> None:
        """Refuse another entry where there are too many; counts them when it seems so."""
        if self._counted is None or self._counted >= MAX_TOTAL:
            self._counted = self._entries.count()
        if self._counted >= MAX_TOTAL:
            raise RefusedError(409, f"the variant index has {self._counted} entries; delete some")


def check_manifest(recipe: str, digest: str, data: bytes) -> None:
    """Refuse bytes that are no manifest of this name, recipe and an allowed scope.

    Only what concerns the index is looked at; that the manifest makes sense is
    for whoever takes it to find out.
    """
    if len(data) > MAX_ENTRY_BYTES:
        raise RefusedError(413, f"a manifest has at most {MAX_ENTRY_BYTES} bytes")
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise RefusedError(400, f"the body has digest {found}, and not {digest}")
    try:
        value = json.loads(data)
        canonical = _canonical(value) == data
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is no JSON: {error}") from None
    if not canonical or type(value) is not dict or value.get("schema") != MANIFEST_SCHEMA:
        raise RefusedError(400, f"the body is no {MANIFEST_SCHEMA} in RFC 8785 form")
    scope = value.get("scope")
    kind = scope.get("kind") if type(scope) is dict else None
    letter = LETTERS.get(kind) if type(kind) is str else None
    if letter is None:
        raise RefusedError(400, f"scope.kind {kind!r}, expected one of {', '.join(LETTERS)}")
    if letter == "r":
        raise RefusedError(400, "a request-local manifest is never listed for others")
    if letter not in allowed_scopes():
        raise RefusedError(403, f"this server takes scopes {allowed_scopes()!r}, and not {kind}")
    named = {name: value.get(name) for name in RECIPE_FIELDS}
    own = hashlib.sha256(_canonical({"schema": RECIPE_SCHEMA, **named})).hexdigest()
    if own != recipe:
        raise RefusedError(400, f"the manifest is of recipe {own}, and not {recipe}")


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _check_digests(**named: str) -> None:
    for name, text in named.items():
        if not _DIGEST.fullmatch(text):
            raise RefusedError(400, f"{name} {text[:80]!r}, expected 64 lowercase hex digits")
