# SPDX-License-Identifier: Apache-2.0
"""LMCache's `raw_block` adapter: slots of a block device, with an index that is written to it.

The index has the key's text; a slot's header has 64 bits of its digest. Not run:
the part that reads and writes the device is a Rust extension that no package index has.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/raw_block_l2_adapter.py`,
`v1/storage_backend/raw_block/key_codec.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import Backend, KeyText
from kvseal.backends.needs import Module


class RawBlock(Backend):
    """Objects in slots of a device."""

    name = "raw_block"
    adapter_type = "raw_block"
    lasts_over_lmcache = True
    limits = "a slot's header tells keys apart by 64 bits alone"
    needs = (
        Module(
            "lmcache_rust_raw_block_io",
            "build it from LMCache's source (rust/raw_block); no package index has it",
        ),
    )

    def key_text(self, version: str) -> KeyText:
        """The text in the index on the device; the model name is quoted in it."""
        return KeyText("v1/storage_backend/raw_block/key_codec.py", "object_key_to_string")
