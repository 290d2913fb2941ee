# SPDX-License-Identifier: Apache-2.0
"""LMCache's `native_plugin` adapter with a connector of our own, which keeps files.

LMCache means connectors in C++; what it asks of them are seven methods, and the
keys they get are the text of all native connectors. The one here is in Python.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/native_plugin_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import NATIVE, Backend, KeyText, Running, Site
from kvseal.backends.plugin import running_double


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
    def started(self, site: Site) -> Iterator[Running]:
        """Write the connector where LMCache will find it."""
        yield running_double(self.adapter_type, "FilesConnector", site)
