# SPDX-License-Identifier: Apache-2.0
"""All codemods by name, in the order they are applied, and the choice among them.

A new codemod adds its module, its test and one line here. Loads LibCST, so it
is imported only where patches are made; `patchset` and `kvseal patch` call it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvseal.codemods import (
    lmcache_capability,
    lmcache_connector_variant,
    lmcache_engine_variant,
    lmcache_event_fence,
    lmcache_key_variant,
    lmcache_labels,
    lmcache_layout_lookup,
    lmcache_name_length,
    lmcache_payload_seal,
    lmcache_scope_enforcement,
    lmcache_sdk_variant,
    lmcache_transform_identity,
    lmcache_variant_index,
    vllm_block_hash_variant,
    vllm_distribution_name,
    vllm_query_export,
)
from kvseal.codemods.codemod import Codemod
from kvseal.errors import OptionError

CODEMODS: tuple[Codemod, ...] = (
    vllm_distribution_name.CODEMOD,
    vllm_query_export.CODEMOD,
    # Transform identity. The first adds the module that the others import.
    lmcache_transform_identity.CODEMOD,
    lmcache_key_variant.CODEMOD,
    lmcache_layout_lookup.CODEMOD,
    lmcache_connector_variant.CODEMOD,
    lmcache_engine_variant.CODEMOD,
    lmcache_sdk_variant.CODEMOD,
    lmcache_scope_enforcement.CODEMOD,
    lmcache_variant_index.CODEMOD,
    lmcache_event_fence.CODEMOD,
    lmcache_name_length.CODEMOD,
    lmcache_payload_seal.CODEMOD,
    lmcache_labels.CODEMOD,
    lmcache_capability.CODEMOD,
    vllm_block_hash_variant.CODEMOD,
)


def select(
    only: Sequence[str] = (), without: Sequence[str] = (), wanted: Sequence[str] | None = None
) -> list[Codemod]:
    """Return the codemods named by `only` (empty: all) less those of `without`.

    `wanted` are the only ones that a workflow wants at all; None means all.

    Raises:
        OptionError: for a name that is no codemod.
    """
    names = [codemod.name for codemod in CODEMODS]
    for option, chosen in (("--only", only), ("--without", without)):
        for name in chosen:
            if name not in names:
                raise OptionError(
                    "no such codemod",
                    option=option,
                    value=name,
                    expected=f"one of {', '.join(names)}",
                )
    return [
        codemod
        for codemod in CODEMODS
        if (not only or codemod.name in only)
        and codemod.name not in without
        and (wanted is None or codemod.name in wanted)
    ]
