# SPDX-License-Identifier: Apache-2.0
"""What a run has left on the machine: processes, listening ports, segments.

Asked by drivers after their engines are stopped, before a verdict is written,
and by tests. A process belongs to a run when it was started with the run's
KVSEAL_RUN_ID, when its output goes to a file of the run, or when it descends
from or shares the session of such a process: a program that rewrites its title
overwrites its environment, but not where its output goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kvseal.process.ports import PortHolder, port_holder
from kvseal.process.segments import segments
from kvseal.process.tree import (
    Process,
    command_line,
    descendants,
    environment_of,
    output_files,
    processes,
    read_process,
)

RUN_VARIABLE = "KVSEAL_RUN_ID"
ENGINE_VARIABLE = "KVSEAL_ENGINE_ID"


@dataclass(frozen=True)
class Leftovers:
    """Empty, and so false, when a run left nothing."""

    processes: tuple[Process, ...]
    ports: tuple[PortHolder, ...]
    segments: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.ports or self.segments)

    def lines(self) -> list[str]:
        """Return one line for each thing that is left."""
        return [
            *(f"process {item.pid}: {command_line(item.pid)[:160]}" for item in self.processes),
            *(f"port {item.port}: {item}" for item in self.ports),
            *(f"shared memory /dev/shm/{name}" for name in self.segments),
        ]


def leftovers(
    run_id: str, *, ports: Iterable[int] = (), shared_memory: Iterable[str] = ()
) -> Leftovers:
    """Return what is left of run `run_id`.

    `ports` are the ports its servers used, `shared_memory` the names they were
    given. This process and those above it do not count.
    """
    return Leftovers(
        processes=tuple(run_processes(RUN_VARIABLE, run_id)),
        ports=tuple(holder for port in ports if (holder := port_holder(port)) is not None),
        segments=tuple(segments(shared_memory)),
    )


def run_processes(variable: str, value: str, output: str = "") -> list[Process]:
    """Return the living processes that belong to `variable`=`value`, parents first.

    `output`, if given, is the text that the path of their output must hold;
    otherwise `value` is.
    """
    mine = _lineage()
    table = {pid: item for pid, item in processes().items() if item.alive and pid not in mine}
    found = {
        pid
        for pid in table
        if environment_of(pid).get(variable) == value
        or any((output or value) in path for path in output_files(pid))
    }
    # The driver's own session may hold a shell and anything else.
    sessions = {table[pid].session for pid in found} - {os.getsid(0), 0}
    sessions &= found
    found |= {pid for pid, item in table.items() if item.session in sessions}
    found |= {item.pid for item in descendants(found) if item.pid in table}
    return [table[pid] for pid in sorted(found, key=lambda pid: table[pid].started_ticks)]


def _lineage() -> set[int]:
    result = set()
    pid = os.getpid()
    while pid > 0 and pid not in result:
        result.add(pid)
        process = read_process(pid)
        pid = process.parent if process else 0
    return result
