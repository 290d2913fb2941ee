# SPDX-License-Identifier: Apache-2.0
"""LMCache's `raw_block` adapter: slots of a block device, with an index that is written to it.

The index has the key's text; a slot's header has 64 bits of its digest. LMCache
reads and writes the device through a Rust extension that is in no wheel and no
package index. A stand-in of our own does that here, on a file; index, slots and
checkpoints, where the identity lies, are LMCache's.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/raw_block_l2_adapter.py`,
`v1/storage_backend/raw_block/key_codec.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.added import copied
from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.folders import sparse_file

DEVICE_BYTES = 4 << 30
SLOT_BYTES = 4 << 20
"""An object must fit into a slot: 64 tokens of SmolLM2-135M in float32 are 2.8 MiB."""
INDEX_BYTES = 16 << 20


class RawBlock(Backend):
    """A sparse file in place of a block device, in slots of one size."""

    name = "raw_block"
    adapter_type = "raw_block"
    lasts_over_lmcache = True
    limits = (
        "on a stand-in for LMCache's Rust extension; the index lasts when LMCache ends in order"
    )

    def key_text(self, version: str) -> KeyText:
        """The text in the index on the device; the model name is quoted in it."""
        return KeyText("v1/storage_backend/raw_block/key_codec.py", "object_key_to_string")

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Make the file that stands for the device, and the stand-in for the extension."""
        device = sparse_file(site.folder / "raw_block.bin", DEVICE_BYTES)
        extension = copied(
            "lmcache_rust_raw_block_io", site.folder.with_name(f"{site.folder.name}-extension")
        )
        adapter = {
            "type": self.adapter_type,
            "device_path": str(device),
            "slot_bytes": SLOT_BYTES,
            "meta_total_bytes": INDEX_BYTES,
            "io_engine": "posix",
            "use_odirect": False,
        }

        def forget() -> None:
            with device.open("r+b") as file:
                file.truncate(0)
                file.truncate(DEVICE_BYTES)

        yield Running(
            (adapter,),
            python_path=(extension.parent,),
            on_wipe=forget,
            on_size=lambda: device.stat().st_blocks * 512,
        )
