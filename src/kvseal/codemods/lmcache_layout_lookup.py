# SPDX-License-Identifier: Apache-2.0
"""LMCache: the memory layout of a variant is that of its model.

The server looks layouts up by the model name of a key, which holds the mark
of a variant; engines and SDK register plain names. Lookups take the mark off
(`##query` stays: queries have a layout of their own), and a registration whose
name holds a mark is refused. Without this edit a variant is never found.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, before, instead, line

ENGINE_CONTEXT = "lmcache/v1/multiprocess/engine_context.py"

LOOKUP = "entry = self._registry.get((model_name, world_size))"
STRIPPED = """
# kvseal: a variant has its model's layout.
entry = self._registry.get(
    (transform_identity.split(model_name)[0], world_size)
)
"""

ANCHORS = (
    line(
        "",
        "from lmcache.v1.multiprocess.session import SessionManager",
        before("from lmcache.v1 import transform_identity"),
    ),
    line(
        "LayoutDescRegistry.register",
        "key = (model_name, world_size)",
        after('transform_identity.refuse_forged(model_name, "model name")'),
    ),
    *(
        line(f"LayoutDescRegistry.{name}", LOOKUP, instead(STRIPPED))
        for name in ("find", "find_group_layout_descs", "find_attn_desc")
    ),
)


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the file with the edit made (see `Codemod.rewrite`)."""
    del distribution
    source = sources[ENGINE_CONTEXT]
    return {
        ENGINE_CONTEXT: rewrite_source(
            ENGINE_CONTEXT, source, ANCHORS, absent=("transform_identity",)
        )
    }


CODEMOD = Codemod(
    name="lmcache_layout_lookup",
    summary="LMCache finds the memory layout of a variant under its model's name",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(ENGINE_CONTEXT,),
    rewrite=rewrite,
)
