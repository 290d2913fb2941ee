# SPDX-License-Identifier: Apache-2.0
"""LMCache's `nixl_store` adapter on NIXL's POSIX plugin: a pool of files made at the start.

Which object lies in which file is known in memory alone, so nothing is found
after a restart though the bytes are still there.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/nixl_store_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import IN_MEMORY, Backend, KeyText, Running, Site
from kvseal.backends.nixl_files import NIXL, SLOT_BYTES, parameters

POOL_SLOTS = 512


class NixlStore(Backend):
    """Sparse files of one size, and an index in memory."""

    name = "nixl_store"
    adapter_type = "nixl_store"
    lasts_over_lmcache = False
    packages = True
    limits = "an object must fit into a slot; the index of slots is in memory"
    needs = (NIXL,)

    def key_text(self, version: str) -> KeyText:
        """No text: the index has the ObjectKey itself."""
        return IN_MEMORY

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Make the folder of the pool."""
        site.folder.mkdir(parents=True, exist_ok=True)
        adapter = {
            "type": self.adapter_type,
            "pool_size": POOL_SLOTS,
            **parameters(site.folder, file_size=str(SLOT_BYTES)),
        }
        yield Running((adapter,), python_path=tuple(site.packages))
