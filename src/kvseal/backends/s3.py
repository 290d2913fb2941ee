# SPDX-License-Identifier: Apache-2.0
"""LMCache's `s3` adapter on moto's server, which keeps objects in its memory.

moto is a double of AWS' service: it checks no signature and forgets everything
when it stops. kvseal.backends.s3_rclone is a server of another make that checks
and keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends import s3_bucket
from kvseal.backends.added import copied
from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.loopback import LoopbackServer, started
from kvseal.backends.needs import Module, join_path
from kvseal.process import free_port


class S3(Backend):
    """One bucket of moto on loopback."""

    name = "s3"
    adapter_type = "s3"
    own_server = "moto's S3"
    lasts_over_lmcache = True
    lasts_over_own = False
    limits = "moto checks no signature and keeps objects in memory"
    packages = True
    needs = (
        s3_bucket.CRT,
        Module("moto", "install requirements/backends.txt into a folder and name it"),
        Module("flask_cors", "install requirements/backends.txt into a folder and name it"),
    )

    def key_text(self, version: str) -> KeyText:
        """The object's name, quoted in the URL's path."""
        return s3_bucket.KEY_TEXT

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Start moto with an empty bucket."""
        port = free_port()
        server = LoopbackServer(
            name="moto",
            command=[site.python, str(copied("moto_s3", site.folder)), str(port), "kvseal"],
            ready=lambda: s3_bucket.answers(port),
            log=site.logs / f"{self.name}.log",
            run_id=site.run_id,
            environment={"PYTHONPATH": join_path(site.packages)},
            folder=site.folder,
        )
        with started(server):
            yield Running(
                adapters=(s3_bucket.adapter(port),),
                on_restart=server.restart,
                on_wipe=server.restart,
                on_size=lambda: s3_bucket.listed_bytes(port),
            )
