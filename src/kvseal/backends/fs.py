# SPDX-License-Identifier: Apache-2.0
"""LMCache's `fs` adapter: a file an object, its key in the file's name.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/fs_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.folders import running_on
from kvseal.backends.needs import Module


class Fs(Backend):
    """Objects as files of a folder, which any number of LMCache servers may share."""

    name = "fs"
    adapter_type = "fs"
    lasts_over_lmcache = True
    confuses = ("/", "-SEP-")
    limits = "file names of at most 255 bytes; no limit on the space taken"
    needs = (Module("aiofiles", "LMCache brings it: install its requirements"),)

    def key_text(self, version: str) -> KeyText:
        """The file name."""
        return KeyText("v1/distributed/l2_adapters/fs_l2_adapter.py", "_object_key_to_filename")

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Nothing to start: the folder is the store."""
        yield running_on(site.folder, {"type": self.adapter_type, "base_path": str(site.folder)})
