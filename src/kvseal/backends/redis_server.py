# SPDX-License-Identifier: Apache-2.0
"""A Redis or Valkey server on loopback, for the backends that speak RESP.

Only loopback, no password, protected mode off for it; data in the folder given,
each write in the append-only file before it is answered, so that a restart
loses nothing that was reported as stored. Speaks just enough RESP to ask
whether it is ready, how much it holds, and to empty it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.backends.backend import Running
from kvseal.backends.loopback import LoopbackServer, started
from kvseal.backends.needs import Program
from kvseal.errors import EngineError
from kvseal.process import free_port

REDIS = Program(
    ("redis-server", "valkey-server"),
    "install redis-server or valkey-server (Debian has the first)",
)
VALKEY = Program(
    ("valkey-server", "redis-server"),
    "install valkey-server, or redis-server, which the same client takes",
)


def ask(port: int, *words: str) -> bytes:
    """Send one command and return its first line of answer, or the bulk that follows it.

    Raises:
        OSError: no server answers.
        EngineError: it answers with an error.
    """
    request = b"*%d\r\n" % len(words)
    request += b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            line: bytes = answer.readline().rstrip(b"\r\n")
            if line.startswith(b"$") and line != b"$-1":
                return answer.read(int(line[1:]))
    if line.startswith(b"-"):
        raise EngineError(f"the server at port {port}: {line[1:].decode(errors='replace')}")
    return line[1:]


def ready(port: int) -> bool:
    """True once the server serves; while it loads its file it answers with an error."""
    try:
        return ask(port, "PING") == b"PONG"
    except EngineError:
        return False


@dataclass
class RedisServer:
    """A running server and the port it listens at."""

    server: LoopbackServer
    port: int

    def data_bytes(self) -> int:
        """Return the memory that keys and values take, a little of the server's own included."""
        if ask(self.port, "DBSIZE") == b"0":
            return 0
        report = dict(
            line.split(b":", 1)
            for line in ask(self.port, "INFO", "memory").splitlines()
            if b":" in line
        )
        return int(report[b"used_memory_dataset"])

    def running(self, adapter: Mapping[str, Any], **more: Any) -> Running:
        """Return what is up for an adapter that talks to this server."""
        return Running(
            adapters=(adapter,),
            on_restart=self.server.restart,
            on_wipe=self.empty,
            on_size=self.data_bytes,
            **more,
        )

    def empty(self) -> None:
        """Remove every key.

        Raises:
            EngineError: the server did not do it.
        """
        if ask(self.port, "FLUSHALL") != b"OK":
            raise EngineError(f"{self.server.name} did not remove its keys")


@contextmanager
def started_redis(
    program: Program, folder: Path, *, run_id: str, log: Path
) -> Iterator[RedisServer]:
    """Start a server with its data in `folder`, for the length of a `with` block.

    Raises:
        PrerequisiteError: none is installed.
        EngineError: it did not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, port = program.path(), free_port()
    command = [
        path,
        *("--bind", "127.0.0.1", "--port", str(port), "--protected-mode", "no"),
        *("--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"),
        *("--daemonize", "no", "--databases", "1"),
    ]
    server = LoopbackServer(
        name=Path(path).name,
        command=command,
        ready=lambda: ready(port),
        log=log,
        run_id=run_id,
        folder=folder,
    )
    with started(server):
        yield RedisServer(server, port)
