# SPDX-License-Identifier: Apache-2.0
"""LMCache's `native_plugin` adapter with a connector of our own, which keeps files.

LMCache means connectors in C++; what it asks of them are seven methods, and the
keys they get are the text of all native connectors. The one here is in Python.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/native_plugin_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvseal.backends.added import copied
from kvseal.backends.backend import NATIVE, Backend, KeyText, Running
from kvseal.backends.folders import running_on
from kvseal.backends.plugin import MODULE


class NativePlugin(Backend):
    """A connector class that LMCache loads by name from a folder on its PYTHONPATH."""

    name = "native_plugin"
    adapter_type = "native_plugin"
    lasts_over_lmcache = True
    limits = "a connector is a double for tests; another one may take keys apart as fs_native does"

    def key_text(self, version: str) -> KeyText:
        """The text of all native connectors."""
        return NATIVE

    @contextmanager
    def started(
        self,
        folder: Path,
        *,
        run_id: str,
        logs: Path,
        python: str = "",
        packages: Sequence[Path] = (),
    ) -> Iterator[Running]:
        """Write the connector where LMCache will find it."""
        path = copied(MODULE, folder.with_name(f"{folder.name}-plugin"))
        adapter = {
            "type": self.adapter_type,
            "module_path": MODULE,
            "class_name": "FilesConnector",
            "adapter_params": {"folder": str(folder)},
        }
        yield running_on(folder, adapter, python_path=(path.parent,))
