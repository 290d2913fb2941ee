# SPDX-License-Identifier: Apache-2.0
"""LMCache's `aerospike` adapter: an Aerospike cluster, spoken to by C++.

Not run: LMCache's wheels have no connector for it, and Debian no server.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/aerospike_l2_adapter.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import NATIVE, Backend, KeyText
from kvseal.backends.needs import Module, Outside


class Aerospike(Backend):
    """Objects as records of a cluster."""

    name = "aerospike"
    adapter_type = "aerospike"
    own_server = "an Aerospike cluster"
    lasts_over_lmcache = True
    lasts_over_own = True
    needs = (
        Module(
            "lmcache.lmcache_aerospike",
            "build LMCache from its source with BUILD_AEROSPIKE=1; its wheel has no such extension",
        ),
        Outside("an Aerospike cluster", "start one and name it in the adapter"),
    )

    def key_text(self, version: str) -> KeyText:
        """The text of all native connectors."""
        return NATIVE
