# SPDX-License-Identifier: Apache-2.0
"""The small process that every engine hangs below, and that outlives its driver.

Run by kvseal.process.engine as `python -I -S -c …` from the same source tree
or zip application; it is never imported by a driver for its effects.

It is a child subreaper, so whatever an engine forks, double-forks or moves to
another session stays below it: "all my descendants" is the whole tree, even
after the engine itself crashed. It stops that tree when told to on standard
input, when standard input ends, or when its parent is no longer the driver;
the last two are how a driver that was killed outright still leaves nothing.
The engine in turn gets SIGKILL should the supervisor die first.

Protocol: one JSON line on standard input (see `Order`), later lines
`stop SECONDS`; JSON lines on standard output: started | failed, segments,
exited, stopped. Standard error is the engine's log.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from kvseal.process.segments import mapped, present, remove_segments, remove_unmapped
from kvseal.process.tree import Process, descendants, send

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Source: prctl(2), <linux/prctl.h>."""

ORPHAN_GRACE_SECONDS = 10.0
"""How long an engine may take to end by itself when its driver is gone."""

LOOK_SECONDS = 5.0
"""How often to note which shared memory the tree maps: a crash leaves nobody to ask."""

KILL_SECONDS = 15.0
"""How long after SIGKILL a process may take; one in uninterruptible I/O can't be ended."""


@dataclass(frozen=True)
class Order:
    """What to run: command, whole environment, folder, and segments to remove afterwards."""

    name: str
    driver: int
    command: list[str]
    env: dict[str, str]
    cwd: str
    shared_memory: list[str]


def prctl(option: int, value: int) -> None:
    """Call prctl(2) for this process.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


class Supervisor:
    """One engine's tree: start it, watch it, end it."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.leader = 0
        self.leader_status: int | None = None
        self.pending = b""
        self.former_segments = present()
        self.segments: set[str] = set()

    def start(self) -> bool:
        """Start the engine; False, said on standard output, when it can't be executed."""
        me = os.getpid()

        def before_exec() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(1)

        try:
            engine = subprocess.Popen(
                self.order.command,
                env=self.order.env,
                cwd=self.order.cwd,
                stdin=subprocess.DEVNULL,
                stdout=2,
                stderr=2,
                start_new_session=True,
                # Safe here: this process has one thread and never more.
                preexec_fn=before_exec,  # noqa: PLW1509
            )
        except (OSError, subprocess.SubprocessError) as error:
            say({"event": "failed", "message": str(error)})
            return False
        self.leader = engine.pid
        # Waiting is done by reap() for all children at once.
        engine.returncode = 0
        say({"event": "started", "pid": engine.pid})
        return True

    def look(self) -> None:
        """Note the shared memory that the tree maps and that was not there before it."""
        seen = set(self.segments)
        for process in self.tree():
            seen |= mapped(process.pid) - self.former_segments
        if seen != self.segments:
            self.segments = seen
            say({"event": "segments", "names": sorted(seen)})

    def reap(self) -> None:
        """Collect every child that has ended; report the engine's own end once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.leader_status = os.waitstatus_to_exitcode(status)
                say({"event": "exited", "status": self.leader_status})

    def tree(self) -> list[Process]:
        """Return what is alive below this process."""
        self.reap()
        return [process for process in descendants([os.getpid()]) if process.alive]

    def watch(self, wakeup: int) -> float:
        """Wait until there is a reason to stop; return the seconds of grace to give."""
        looked = time.monotonic()
        while True:
            ready, _, _ = select.select([0, wakeup], [], [], 1.0)
            if wakeup in ready or time.monotonic() - looked >= LOOK_SECONDS:
                self.look()
                looked = time.monotonic()
            if wakeup in ready:
                numbers = os.read(wakeup, 512)
                if signal.SIGTERM in numbers:
                    note(f"supervisor of {self.order.name} was asked to end")
                    return ORPHAN_GRACE_SECONDS
            self.reap()
            if 0 in ready:
                grace = self.command()
                if grace is not None:
                    return grace
            if os.getppid() != self.order.driver:
                note(f"driver {self.order.driver} is gone: stopping {self.order.name}")
                return ORPHAN_GRACE_SECONDS

    def command(self) -> float | None:
        """Read standard input; return the grace when it says stop or has ended."""
        data = os.read(0, 4096)
        if not data:
            note(f"driver {self.order.driver} closed its pipe: stopping {self.order.name}")
            return ORPHAN_GRACE_SECONDS
        self.pending += data
        *lines, self.pending = self.pending.split(b"\n")
        for line in lines:
            word, _, seconds = line.partition(b" ")
            if word == b"stop":
                return float(seconds)
        return None

    def stop(self, grace_seconds: float) -> dict[str, Any]:
        """End the whole tree: SIGTERM, wait, SIGKILL until nothing is left."""
        self.look()
        terminated = self.signal_all(self.tree(), signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        left = self.tree()
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = self.tree()
        killed: set[int] = set()
        deadline = time.monotonic() + KILL_SECONDS
        while left and time.monotonic() < deadline:
            killed |= self.signal_all(left, signal.SIGKILL)
            time.sleep(0.02)
            left = self.tree()
        # The last to end may have done so after tree() collected the others.
        self.reap()
        return {
            "event": "stopped",
            "status": self.leader_status,
            "terminated": sorted(terminated),
            "killed": sorted(killed),
            "survivors": [process.pid for process in left],
            "segments": [
                *remove_segments(self.order.shared_memory),
                *remove_unmapped(self.segments),
            ],
        }

    def signal_all(self, targets: list[Process], number: int) -> set[int]:
        """Signal each of `targets`; return the IDs of those that were there."""
        reached = set()
        for process in targets:
            with contextlib.suppress(PermissionError):
                if send(process, number):
                    reached.add(process.pid)
        return reached


def say(message: dict[str, Any]) -> None:
    """Write one line to the driver, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def note(text: str) -> None:
    """Write one line of our own into the engine's log."""
    with contextlib.suppress(OSError):
        os.write(2, f"[kvseal] {text}\n".encode())


def read_order() -> tuple[Order, bytes] | None:
    """Read the first line of standard input; None when it ended before one was complete."""
    data = b""
    while b"\n" not in data:
        try:
            part = os.read(0, 65536)
        except OSError as error:
            if error.errno == errno.EINTR:
                continue
            raise
        if not part:
            return None
        data += part
    line, _, rest = data.partition(b"\n")
    return Order(**json.loads(line)), rest


def main() -> int:
    """Run one engine until it is to be stopped; 0 when nothing is left of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    # A handler must stand for the number to reach the wakeup pipe.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    order = read_order()
    if order is None:
        return 0
    supervisor = Supervisor(order[0])
    supervisor.pending = order[1]
    if not supervisor.start():
        return 1
    report = supervisor.stop(supervisor.watch(wakeup))
    say(report)
    return 1 if report["survivors"] else 0


if __name__ == "__main__":
    sys.exit(main())
