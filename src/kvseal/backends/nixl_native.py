# SPDX-License-Identifier: Apache-2.0
"""LMCache's `nixl_native` adapter: NIXL's storage plugins, driven from C++.

Not run: LMCache's wheels have no such extension. What the connector makes of its
text can't be read in the wheel.

Source: LMCache 0.5.6, `v1/distributed/l2_adapters/nixl_native_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvseal.backends.backend import NATIVE, Backend, KeyText, Refusal
from kvseal.backends.needs import Module


class NixlNative(Backend):
    """Objects in whatever a NIXL storage plugin writes to."""

    name = "nixl_native"
    adapter_type = "nixl_native"
    lasts_over_lmcache = True
    needs = (
        Module(
            "lmcache.lmcache_nixl",
            "build LMCache from its source with BUILD_WITH_NIXL=1; its wheel has no such extension",
        ),
    )
    refusals: ClassVar[Mapping[str, Refusal]] = {
        version: Refusal("it came with LMCache 0.5.6", "use LMCache 0.5.6")
        for version in ("0.5.4", "0.5.5")
    }

    def key_text(self, version: str) -> KeyText:
        """The text of all native connectors."""
        return NATIVE
