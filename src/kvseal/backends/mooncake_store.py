# SPDX-License-Identifier: Apache-2.0
"""LMCache's `mooncake_store` adapter: Mooncake's distributed store, spoken to by C++.

Not run: LMCache's wheels have no connector for it. Mooncake's own package without
CUDA loads and serves on a CPU; what is missing is LMCache's side.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/mooncake_store_l2_adapter.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import NATIVE, Backend, KeyText
from kvseal.backends.needs import Module, Outside


class MooncakeStore(Backend):
    """Objects in the memory of the machines that make up a Mooncake store."""

    name = "mooncake_store"
    adapter_type = "mooncake_store"
    own_server = "a Mooncake store"
    lasts_over_lmcache = True
    lasts_over_own = False
    limits = "an object lives as long as the store keeps it"
    needs = (
        Module(
            "lmcache.lmcache_mooncake",
            "build LMCache from its source with MOONCAKE_INCLUDE_DIR set; its wheel lacks it",
        ),
        Outside(
            "a running Mooncake store (mooncake_master)", "start one and name it in the adapter"
        ),
    )

    def key_text(self, version: str) -> KeyText:
        """The text of all native connectors."""
        return NATIVE
