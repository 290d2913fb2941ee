# SPDX-License-Identifier: Apache-2.0
"""LMCache's `valkey` adapter: the official client in Python, on a Valkey or Redis server.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/valkey_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.needs import Module
from kvseal.backends.redis_server import VALKEY, started_redis


class Valkey(Backend):
    """A key-value server on loopback, with a prefix to all keys."""

    name = "valkey"
    adapter_type = "valkey"
    own_server = "valkey-server or redis-server"
    lasts_over_lmcache = True
    lasts_over_own = True
    packages = True
    limits = "lasts over the server's own restart with an append-only file, as it is started here"
    needs = (
        Module(
            "glide_sync",
            "install requirements/backends.txt (valkey-glide-sync) into a folder and name it",
            load=True,
        ),
        VALKEY,
    )

    def key_text(self, version: str) -> KeyText:
        """The key in the server: the native connectors' text behind the prefix."""
        return KeyText(
            "v1/distributed/l2_adapters/valkey_l2_adapter.py", "ValkeyL2Adapter._wire_key"
        )

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Start the server on a free port of loopback."""
        with started_redis(
            VALKEY, site.folder, run_id=site.run_id, log=site.logs / f"{self.name}.log"
        ) as server:
            adapter = {
                "type": self.adapter_type,
                "startup_nodes": f"127.0.0.1:{server.port}",
                "key_prefix": "kvseal",
                "num_workers": 2,
            }
            yield server.running(adapter, python_path=tuple(site.packages))
