# SPDX-License-Identifier: Apache-2.0
"""LMCache: a module that says how keys and requests name transformed KV.

Adds `lmcache/v1/transform_identity.py`, which the other LMCache codemods
import; it changes nothing by itself. `kvseal.identity.variant` holds the same
rules on the outside.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.added import source_of
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution

PATH = "lmcache/v1/transform_identity.py"
MODULE = "lmcache.v1.transform_identity"
LMCACHE_VERSIONS = ("0.5.4", "0.5.5", "0.5.6")
"""The versions of LMCache that the transform-identity codemods were checked against."""


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the added module (see `Codemod.rewrite`)."""
    del distribution, sources
    return {PATH: source_of("transform_identity")}


CODEMOD = Codemod(
    name="lmcache_transform_identity",
    summary="LMCache knows how keys and requests name transformed KV",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(),
    rewrite=rewrite,
)
