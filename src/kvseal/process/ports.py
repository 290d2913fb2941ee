# SPDX-License-Identifier: Apache-2.0
"""TCP ports on loopback: find a free one that stays free, and name who holds one.

Between choosing a port and a server binding it, anybody may take it. The ports
given out here lie outside the kernel's ephemeral range, so no outgoing
connection and no `bind(0)` of an engine's own can get one, and each is locked
against other kvseal processes until this one ends. Only a stranger who names
the very port can still take it; the server then says so itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from kvseal.errors import PrerequisiteError
from kvseal.process.tree import PROC, command_line

LOWEST, HIGHEST = 20000, 65535

_held: list[socket.socket] = []
"""Locks of the ports given out; the kernel drops them when this process ends."""


def free_port() -> int:
    """Return a TCP port that nothing on 127.0.0.1 uses, never the same one twice.

    Raises:
        PrerequisiteError: no port can be bound at all.
    """
    low, high = _ephemeral_range()
    candidates = [port for port in range(LOWEST, HIGHEST + 1) if not low <= port <= high]
    for _ in range(min(200, len(candidates))):
        port = candidates.pop(secrets.randbelow(len(candidates)))
        if _bindable(port) and _lock(port):
            return port
    for _ in range(50):
        port = _from_kernel()
        if _lock(port):
            return port
    raise PrerequisiteError(
        "no free TCP port on 127.0.0.1",
        expected="at least one that can be bound",
        remedy="see `ss -tlnp` for what holds them",
    )


def _ephemeral_range() -> tuple[int, int]:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        low, high = (int(number) for number in text.split())
    except (OSError, ValueError):
        return 32768, 60999  # Linux's default: ip(7)
    return low, high


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return port_holder(port) is None


def _from_kernel() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            raise PrerequisiteError(f"127.0.0.1 can't be bound: {error}") from None
        port: int = probe.getsockname()[1]
    return port


def _lock(port: int) -> bool:
    # An abstract Unix socket belongs to the network namespace, as ports do, and
    # goes with its process: a lock that can't be left behind.
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0kvseal-port-{port}")
    except OSError:
        lock.close()
        return False
    _held.append(lock)
    return True


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port; `pid` is None when the process can't be seen from here."""

    port: int
    address: str
    pid: int | None
    command: str

    def __str__(self) -> str:
        who = (
            "a process of another user or container"
            if self.pid is None
            else (f"process {self.pid} ({self.command[:120]})")
        )
        return f"{who}, listening on {self.address}"


def port_holder(port: int) -> PortHolder | None:
    """Return who listens on TCP `port` on any address, or None."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            # 0A is TCP_LISTEN: <net/tcp_states.h>.
            if fields[3] == "0A" and int(number, 16) == port:
                pid = _socket_owner(fields[9])
                command = "?" if pid is None else command_line(pid)
                return PortHolder(port, _address(address), pid, command)
    return None


def _socket_owner(inode: str) -> int | None:
    target = f"socket:[{inode}]"
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) == target:  # noqa: PTH115  (not a path)
                        return int(entry.name)
    return None


def _address(hexadecimal: str) -> str:
    # Each 32-bit word stands in the order of this machine's bytes: proc(5).
    words = [bytes.fromhex(hexadecimal[i : i + 8])[::-1] for i in range(0, len(hexadecimal), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words))
