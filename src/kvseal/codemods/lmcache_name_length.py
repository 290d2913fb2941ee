# SPDX-License-Identifier: Apache-2.0
"""LMCache server: a variant's entry whose L2 file name would be too long is not stored at all.

Looked at where storage is reserved, before L1 holds anything, as long as an
adapter is attached that makes a file of each key. The store then wrote less than
it was given, which the SDK reports as an error; the server's log says why.
`added/transform_name.py` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.added import source_of
from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, first_in_body, function, line

NAME = "lmcache/v1/transform_name.py"
MANAGER = "lmcache/v1/distributed/storage_manager.py"

IMPORT = """
from lmcache.v1 import transform_name
"""
STORABLE = """
# kvseal: refused before anything is stored, not when L2 can't make the file.
if transform_name.names_variants(keys):
    with self._adapters_lock:
        adapter_configs = [item.config for item in self._adapter_descriptors.values()]
    keys = transform_name.storable(keys, adapter_configs)
"""


def _anchors(version: str) -> tuple[Anchor, ...]:
    head: tuple[str, ...] = ("self", "keys", "layout_desc")
    if version != "0.5.6":
        head += ("mode",)
    return (
        line("", "from lmcache.logging import init_logger", after(IMPORT)),
        function("StorageManager", "reserve_write", head, first_in_body(STORABLE)),
    )


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the file with the edit made, and the added one (see `Codemod.rewrite`)."""
    anchors = _anchors(distribution.release)
    return {
        MANAGER: rewrite_source(MANAGER, sources[MANAGER], anchors, absent=("transform_name",)),
        NAME: source_of("transform_name"),
    }


CODEMOD = Codemod(
    name="lmcache_name_length",
    summary="LMCache refuses a variant's entry whose L2 file name would be too long",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(MANAGER,),
    rewrite=rewrite,
)
