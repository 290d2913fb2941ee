# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc shows them: who descends from whom, and signals that can't go astray.

A process ID may be reused between the look and the signal, so a process here
is its ID and its start time together, and a signal goes through a pidfd that
was opened before the start time was compared. Called by the supervisor and by
kvseal.process.leftovers. Never signals anything that its caller did not name.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process at one moment; `started_ticks` tells it from a later one of the same ID."""

    pid: int
    parent: int
    session: int
    state: str
    started_ticks: int
    name: str

    @property
    def alive(self) -> bool:
        """False for a zombie, which holds nothing but its entry in the table."""
        return self.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """Return the process `pid`, or None when there is none.

    Source: proc(5), /proc/[pid]/stat; the name in brackets may itself hold
    brackets and spaces, so fields are counted from the last closing one.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        started_ticks=int(fields[19]),
        name=head.partition("(")[2],
    )


def processes() -> dict[int, Process]:
    """Return every process that can be seen now, by process ID."""
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    found = (read_process(pid) for pid in pids)
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Iterable[int]) -> list[Process]:
    """Return all processes below `roots` (not the roots themselves), parents before children."""
    table = processes()
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    result: list[Process] = []
    queue = list(roots)
    seen = set(queue)
    while queue:
        for child in children.get(queue.pop(0), []):
            if child.pid not in seen:
                seen.add(child.pid)
                result.append(child)
                queue.append(child.pid)
    return result


def send(process: Process, number: int) -> bool:
    """Signal exactly this process; False when it is already gone.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        # No pidfd before Linux 5.3 and in some sandboxes: compare, then signal.
        return _same(process) and _kill(process.pid, number)
    try:
        if not _same(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _same(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.started_ticks == process.started_ticks


def _kill(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def command_line(pid: int) -> str:
    """Return the command of `pid` as one line, or its name in brackets, or "?"."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return "?"
    text = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    if text:
        return text
    process = read_process(pid)
    return f"[{process.name}]" if process else "?"


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment `pid` was started with; empty when it can't be read.

    A program that rewrites its title (vLLM's engine core does) may overwrite
    this memory, so absence of a variable proves nothing.
    """
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def output_files(pid: int) -> list[str]:
    """Return where standard output and error of `pid` go, as the kernel names them."""
    found = []
    for number in (1, 2):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"{PROC}/{pid}/fd/{number}"))  # noqa: PTH115  (not a path)
    return found
