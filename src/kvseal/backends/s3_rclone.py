# SPDX-License-Identifier: Apache-2.0
"""LMCache's `s3` adapter on `rclone serve s3`, which keeps objects as files of a folder.

rclone takes the first label of the host name for the bucket
(`--force-path-style=false`); of 127.0.0.1 that is "127", a name as good as any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends import s3_bucket
from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.folders import empty, stored_bytes
from kvseal.backends.loopback import LoopbackServer, started
from kvseal.backends.needs import Program
from kvseal.process import free_port

RCLONE = Program(
    ("rclone",),
    "install requirements/backends.txt into a folder and name it (rclone 1.65 or newer)",
)
BUCKET = "127"


class S3Rclone(Backend):
    """One bucket of rclone's S3 server on loopback, on disk."""

    name = "s3_rclone"
    adapter_type = "s3"
    own_server = "rclone serve s3"
    lasts_over_lmcache = True
    lasts_over_own = True
    packages = True
    needs = (s3_bucket.CRT, RCLONE)

    def key_text(self, version: str) -> KeyText:
        """The object's name, quoted in the URL's path."""
        return s3_bucket.KEY_TEXT

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Start rclone on a folder with one bucket."""
        bucket = site.folder / BUCKET
        bucket.mkdir(parents=True, exist_ok=True)
        port = free_port()
        server = LoopbackServer(
            name="rclone",
            command=[
                RCLONE.path(site.packages),
                *("serve", "s3", str(site.folder), "--addr", f"127.0.0.1:{port}"),
                *("--auth-key", f"{s3_bucket.ACCESS_KEY},{s3_bucket.SECRET_KEY}"),
                *(
                    "--force-path-style=false",
                    "--no-cleanup",
                    "--config",
                    "",
                    "--dir-cache-time",
                    "0",
                ),
            ],
            ready=lambda: s3_bucket.answers(port),
            log=site.logs / f"{self.name}.log",
            run_id=site.run_id,
            folder=site.folder,
        )
        with started(server):
            yield Running(
                adapters=(s3_bucket.adapter(port),),
                on_restart=server.restart,
                on_wipe=lambda: empty(bucket),
                on_size=lambda: stored_bytes(bucket),
            )
