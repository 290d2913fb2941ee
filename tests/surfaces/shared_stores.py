# SPDX-License-Identifier: Apache-2.0
"""The two stores that servers of different LMCaches share: a folder and redis, looked into here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmcache_servers import Node, redis_says, shared_folder, until


@dataclass(frozen=True)
class Stores:
    """A folder and a redis-server that hold the same entries."""

    folder: Path
    port: int

    @property
    def l2(self) -> list[dict[str, Any]]:
        """What a server is started with; loads come from the folder while it has them."""
        redis = {"type": "resp", "host": "127.0.0.1", "port": self.port, "shared": True}
        return [shared_folder(self.folder), redis]

    def files(self, salt: str) -> dict[str, bytes]:
        """Return name and bytes of a tenant's files."""
        return {f.name: f.read_bytes() for f in self.folder.glob(f"*@{salt}.data")}

    def redis(self, salt: str) -> dict[str, bytes]:
        """Return name and bytes of a tenant's keys."""
        names = redis_says(self.port, "--raw", "KEYS", f"*@{salt}").decode().split()
        return {n: redis_says(self.port, "--raw", "GET", n)[:-1] for n in names}

    def hold(self, salt: str, objects: int) -> bool:
        """Wait until both have that many objects of a tenant."""
        return until(lambda: len(self.files(salt)) == len(self.redis(salt)) == objects)

    @contextlib.contextmanager
    def only_redis(self, salt: str) -> Iterator[None]:
        """Let a tenant's entries be in redis alone for the length of a `with` block."""
        kept = self.files(salt)
        for name in kept:
            (self.folder / name).unlink()
        try:
            yield
        finally:
            for name, data in kept.items():
                (self.folder / name).write_bytes(data)

    def read(self, node: Node, tokens: list[int], salt: str, variant: str = "") -> list[Any]:
        """Return what a server loads from the folder, and what from redis."""
        node.forget()
        first = node.client.retrieve(tokens, salt, variant)
        node.forget()
        with self.only_redis(salt):
            second = node.client.retrieve(tokens, salt, variant)
        node.forget()
        return [first, second]
