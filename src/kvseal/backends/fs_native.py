# SPDX-License-Identifier: Apache-2.0
"""LMCache's `fs_native` adapter: the files of `fs`, written by C++.

Python gives the connector a text with `@` between the fields; the connector
counts them and makes the file name. The connectors of LMCache 0.5.4 and 0.5.5
know no field for the salt and refuse every salted key: "malformed key (expected
3 or 4 …)". So what a tenant stores is never there, and a matrix, whose rows are
tenants, can't use it.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/fs_native_l2_adapter.py`,
`native_connector_l2_adapter.py`; 0.5.4 was seen to refuse, 0.5.5 has the same message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from kvseal.backends.backend import NATIVE, Backend, KeyText, Refusal, Running, Site
from kvseal.backends.folders import running_on
from kvseal.backends.needs import Module


class FsNative(Backend):
    """Objects as files of a folder, written by LMCache's C++ connector."""

    name = "fs_native"
    adapter_type = "fs_native"
    lasts_over_lmcache = True
    confuses = ("/", "-SEP-")
    limits = "file names of at most 251 bytes, as it adds .tmp while it writes"
    needs = (Module("lmcache.lmcache_fs", "use LMCache's wheel, which has this extension"),)
    refusals: ClassVar[Mapping[str, Refusal]] = {
        version: Refusal(
            "its C++ connector rejects every key with a salt (malformed key)",
            "use LMCache 0.5.6, or the backend fs, which writes the same files",
            salted_only=True,
        )
        for version in ("0.5.4", "0.5.5")
    }

    def key_text(self, version: str) -> KeyText:
        """The text given to the connector; the file name is made of it in C++."""
        return NATIVE

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Nothing to start: the folder is the store."""
        adapter = {"type": self.adapter_type, "base_path": str(site.folder), "num_workers": 1}
        yield running_on(site.folder, adapter)
