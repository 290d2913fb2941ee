# SPDX-License-Identifier: Apache-2.0
"""LMCache's `dax` adapter: objects in a mapped device; a regular file does as well.

Which object lies where is known in memory alone, so nothing is found after a
restart though the bytes are still there.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/dax_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import IN_MEMORY, Backend, KeyText, Running, Site
from kvseal.backends.folders import sparse_file

DEVICE_BYTES = 4 << 30
SLOT_BYTES = 4 << 20
"""An object must fit into a slot: 64 tokens of SmolLM2-135M in float32 are 2.8 MiB."""


class Dax(Backend):
    """A sparse file in place of a DAX device, in slots of one size."""

    name = "dax"
    adapter_type = "dax"
    lasts_over_lmcache = False
    limits = "an object must fit into a slot; the index of slots is in memory"

    def key_text(self, version: str) -> KeyText:
        """No text: the index has the ObjectKey itself."""
        return IN_MEMORY

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Make the file that stands for the device."""
        device = sparse_file(site.folder / "dax.bin", DEVICE_BYTES)
        adapter = {
            "type": self.adapter_type,
            "device_path": str(device),
            "max_dax_size_gb": DEVICE_BYTES / 2**30,
            "slot_bytes": SLOT_BYTES,
        }
        yield Running((adapter,))
