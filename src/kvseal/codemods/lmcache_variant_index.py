# SPDX-License-Identifier: Apache-2.0
"""LMCache server: an index that says which exact variants exist for a recipe.

Adds modules and changes none: nothing about the lookup of KV is different,
whatever the index holds. The entries lie in the folder that
LMCACHE_TRANSFORM_INDEX names, beside an L2's files, or in the server's memory,
as L1 does. docs/formats/variant-index.md has both forms.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.added import source_of
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS

INDEX = "lmcache/v1/transform_index.py"
STORE = "lmcache/v1/transform_index_store.py"
INDEX_API = "lmcache/v1/multiprocess/http_apis/transform_index_api.py"


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the added modules (see `Codemod.rewrite`)."""
    del distribution, sources
    return {
        INDEX: source_of("transform_index"),
        STORE: source_of("transform_index_store"),
        INDEX_API: source_of("transform_index_api"),
    }


CODEMOD = Codemod(
    name="lmcache_variant_index",
    summary="LMCache servers list the exact variants of a recipe, as names to ask for",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(),
    rewrite=rewrite,
)
