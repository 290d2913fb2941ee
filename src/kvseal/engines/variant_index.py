# SPDX-License-Identifier: Apache-2.0
"""Which exact variants exist for a recipe: the index that an edited LMCache server keeps.

What is found is a manifest, and with it a variant to ask the cache for by its
exact name; nothing here is KV, and nothing found here is a hit. A server is
trusted for nothing: every manifest is verified (kvseal.identity.recipe), and a
damaged, forged or foreign one is an error, since leaving it out would look like
a miss. Tenants are kept apart by the digest of their cache salt. Called by
kvseal.engines.sealed and the drivers; docs/formats/variant-index.md has the
format and the endpoints.
"""

from __future__ import annotations

from typing import NoReturn

import requests

from kvseal.canonical import sha256_hex
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.errors import EngineError, EvidenceError, PrerequisiteError, StoreError
from kvseal.identity.fields import check_hex
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.recipe import candidates, listed_variant
from kvseal.identity.variant import check_unmarked

CODEMOD = "lmcache_variant_index"


class VariantIndex:
    """The variant index of one LMCache server."""

    def __init__(self, server: LMCacheHTTP) -> None:
        self._server = server

    def publish(self, manifest: TransformManifest, cache_salt: str = "") -> str:
        """List a manifest under its recipe, for one cache salt; again changes nothing.

        Returns:
            The variant text that it names.

        Raises:
            EvidenceError: it is request-local, which is never listed.
            TransformError: its scope needs a proof that was not registered.
            StoreError: the server refuses it: a scope it does not take, too many entries.
            PrerequisiteError: the server has no variant index.
            EngineError: the server does not answer, or can't write.
        """
        variant = listed_variant(manifest)
        path = f"{_path(manifest.recipe_digest, cache_salt)}/{manifest.digest}"
        answer = self._server.answer("PUT", path, data=manifest.canonical_bytes)
        if not answer.ok:
            self._refuse(answer, "publish a manifest")
        return variant

    def find(self, recipe_sha256: str, cache_salt: str = "") -> list[TransformManifest]:
        """Return the verified manifests of a recipe, by digest; empty where none is known.

        Raises:
            EvidenceError: an entry is damaged, forged, or of another recipe.
            TransformError: an entry has a scope that its transform may not have.
            PrerequisiteError: the server has no variant index.
            EngineError: the server does not answer.
        """
        answer = self._server.answer("GET", _path(recipe_sha256, cache_salt))
        if answer.status_code == requests.codes.server_error:
            raise EvidenceError(
                f"the variant index can't be relied on: {_text(answer)}",
                option="recipe_sha256",
                value=recipe_sha256,
                expected="entries that are the manifests they are named as",
                remedy="remove the entry, or publish its manifest again",
            )
        if not answer.ok:
            self._refuse(answer, "look a recipe up")
        return candidates(answer.content, recipe_sha256)

    def remove(self, recipe_sha256: str, manifest_sha256: str, cache_salt: str = "") -> bool:
        """Take an entry away, a damaged one too; False where there was none.

        Raises:
            EvidenceError: a digest is none.
            PrerequisiteError: the server has no variant index.
            EngineError: the server does not answer, or can't delete.
        """
        check_hex(manifest_sha256, "manifest_sha256")
        path = f"{_path(recipe_sha256, cache_salt)}/{manifest_sha256}"
        answer = self._server.answer("DELETE", path)
        if not answer.ok:
            self._refuse(answer, "remove a manifest")
        return _deleted(answer)

    def _refuse(self, answer: requests.Response, what: str) -> NoReturn:
        status, url = answer.status_code, self._server.base_url
        if status in (requests.codes.not_found, requests.codes.not_allowed):
            raise PrerequisiteError(
                f"can't {what}: this LMCache server has no variant index",
                option="LMCache server",
                value=url,
                expected="the endpoint /transform/index",
                remedy=f"edit its LMCache with `kvseal patch apply` (codemod {CODEMOD}) and "
                "start it again",
            )
        error = StoreError if status < requests.codes.server_error else EngineError
        raise error(
            f"the variant index refused to {what}: {_text(answer)}",
            option="LMCache server",
            value=url,
            remedy="read the server's log" if error is EngineError else None,
        )


def _path(recipe_sha256: str, cache_salt: str) -> str:
    check_hex(recipe_sha256, "recipe_sha256")
    check_unmarked("cache salt", cache_salt)
    return f"/transform/index/{sha256_hex(cache_salt.encode())}/{recipe_sha256}"


def _deleted(answer: requests.Response) -> bool:
    try:
        return bool(answer.json()["deleted"])
    except (ValueError, KeyError, TypeError):
        raise EngineError(
            "LMCache's answer to a deletion says nothing about it", value=answer.text[:200]
        ) from None


def _text(answer: requests.Response) -> str:
    """The server's own words, or the beginning of whatever it sent."""
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}: {answer.text[:200]}"
