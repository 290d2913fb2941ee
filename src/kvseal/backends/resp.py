# SPDX-License-Identifier: Apache-2.0
"""LMCache's `resp` adapter: a Redis or Valkey server, spoken to by C++.

The key is the text that every native connector gets, as it is; the server
holds it as a binary-safe string.

A load of a key that is no longer there never ends (seen in 0.5.4 and 0.5.6):
the connector waits for the bytes of a value whatever the server answered, and
one of its workers is lost. LMCache loads what a lookup has found, so this takes
an entry that went away in between.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/resp_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import NATIVE, Backend, KeyText, Running, Site
from kvseal.backends.needs import Module
from kvseal.backends.redis_server import REDIS, started_redis


class Resp(Backend):
    """A key-value server on loopback, which writes all it accepted to its append-only file."""

    name = "resp"
    adapter_type = "resp"
    own_server = "redis-server or valkey-server"
    lasts_over_lmcache = True
    lasts_over_own = True
    loads_absent = False
    limits = "lasts over the server's own restart with an append-only file, as it is started here"
    needs = (
        Module("lmcache.lmcache_redis", "use LMCache's wheel, which has this extension"),
        REDIS,
    )

    def key_text(self, version: str) -> KeyText:
        """The key in the server."""
        return NATIVE

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Start the server on a free port of loopback, without persistence beyond its folder."""
        with started_redis(
            REDIS, site.folder, run_id=site.run_id, log=site.logs / f"{self.name}.log"
        ) as server:
            adapter = {
                "type": self.adapter_type,
                "host": "127.0.0.1",
                "port": server.port,
                "num_workers": 2,
            }
            yield server.running(adapter)
