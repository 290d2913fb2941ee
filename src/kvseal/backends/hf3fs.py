# SPDX-License-Identifier: Apache-2.0
"""LMCache's `hf3fs` adapter: files of a 3FS file system, written by C++.

Not run: it needs a mounted 3FS and an extension that LMCache's wheels don't have.
What the connector makes of its text can't be read in the wheel.

Source: LMCache 0.5.6, `v1/distributed/l2_adapters/hf3fs_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvseal.backends.backend import NATIVE, Backend, KeyText, Refusal
from kvseal.backends.needs import Module, Outside


class Hf3fs(Backend):
    """Objects as files of a 3FS mount."""

    name = "hf3fs"
    adapter_type = "hf3fs"
    lasts_over_lmcache = True
    needs = (
        Module(
            "lmcache.lmcache_hf3fs",
            "build LMCache from its source with 3FS; its wheel has no such extension",
        ),
        Outside("a mounted 3FS file system", "mount one and name it in the adapter"),
    )
    refusals: ClassVar[Mapping[str, Refusal]] = {
        version: Refusal("it came with LMCache 0.5.6", "use LMCache 0.5.6")
        for version in ("0.5.4", "0.5.5")
    }

    def key_text(self, version: str) -> KeyText:
        """The text of all native connectors."""
        return NATIVE
