# SPDX-License-Identifier: Apache-2.0
"""One engine or server as a context manager: start, wait until ready, stop whole.

    with EngineProcess("vLLM", command, env={…}, log=run / "logs/vllm.log") as vllm:
        vllm.wait_ready(probe, timeout_seconds=600)
        …
        vllm.check()

The engine runs below a supervisor of its own (kvseal.process.supervisor), so
leaving the block, an exception, a signal and even SIGKILL of this process all
end with the same: no process and no named shared-memory segment left. Called by
kvseal.engines; never looks into what it runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import kvseal
from kvseal.errors import EngineError
from kvseal.process.interrupts import shielded
from kvseal.process.leftovers import ENGINE_VARIABLE, RUN_VARIABLE, run_processes
from kvseal.process.logs import log_tail
from kvseal.process.progress import Progress
from kvseal.process.segments import remove_segments, remove_unmapped, segments
from kvseal.process.tree import command_line, send

_SHIM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kvseal.process.supervisor import main; sys.exit(main())"
)

NOT_INHERITED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONDONTWRITEBYTECODE",
    "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
)
"""Belong to the Python that runs kvseal, not to the one that runs an engine.

An engine that may not write bytecode compiles vLLM and torch in each of its
processes, at every start.
"""


@dataclass(frozen=True)
class StopReport:
    """How an engine ended. `status` is its exit status, negative for a signal, None if unknown."""

    status: int | None
    terminated: tuple[int, ...]
    killed: tuple[int, ...]
    segments: tuple[str, ...]
    seconds: float


class EngineProcess:
    """A program and everything it starts, as one thing.

    `name` is what messages call it. `env` is set on top of this process's
    environment, without what belongs to the Python running kvseal. `log` gets
    standard output and error, appended. `shared_memory` names the segments it
    makes (kvseal.process.segment_name), removed once it has ended. `run_id` marks
    its processes for kvseal.process.leftovers; without it KVSEAL_RUN_ID is
    inherited if set.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        shared_memory: Sequence[str] = (),
        run_id: str | None = None,
        cwd: Path | None = None,
        stop_seconds: float = 30.0,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = Path(log)
        self.pid: int | None = None
        self.status: int | None = None
        self.started_at_monotonic = 0.0
        self._shared_memory = list(shared_memory)
        # Never this process's own folder: `python -m` would import from it.
        self._cwd = str(cwd or self.log.resolve().parent)
        self._stop_seconds = stop_seconds
        self._engine_id = secrets.token_hex(8)
        self._env = {key: text for key, text in os.environ.items() if key not in NOT_INHERITED}
        self._env |= {**env, ENGINE_VARIABLE: self._engine_id}
        if run_id is not None:
            self._env[RUN_VARIABLE] = run_id
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._failure = ""
        self._last: dict[str, Any] = {}
        self._segments: list[str] = []
        self._report: StopReport | None = None
        segments(self._shared_memory)  # refuses a name that is not ours before anything starts

    def start(self) -> None:
        """Start the program and return once it is executed (not: ready).

        Raises:
            EngineError: the log can't be written, or the program not executed.
        """
        if self._supervisor is not None:
            raise EngineError(f"{self.name} was already started")
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            log = self.log.open("ab")
        except OSError as error:
            raise EngineError(
                f"log of {self.name} can't be written: {error.strerror}", value=str(self.log)
            ) from None
        with log, shielded():
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SHIM, source_root(), f"for {self.name}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=self._env,
                start_new_session=True,
            )
            assert self._supervisor.stdout is not None  # noqa: S101  (mypy; PIPE was asked for)
            os.set_blocking(self._supervisor.stdout.fileno(), False)
            self._tell(json.dumps(self._order()))
            self.started_at_monotonic = time.monotonic()
            self._await_start()

    def _order(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "driver": os.getpid(),
            "command": self.command,
            "env": self._env,
            "cwd": self._cwd,
            "shared_memory": self._shared_memory,
        }

    def _await_start(self) -> None:
        deadline = time.monotonic() + 60
        while self.pid is None and not self._failure and time.monotonic() < deadline:
            self._listen(0.2)
            if self._supervisor is not None and self._supervisor.poll() is not None:
                self._listen(0)
                break
        if self.pid is None:
            reason = self._failure or "its supervisor did not come up"
            self.stop()
            raise EngineError(
                f"{self.name} could not be started: {reason}",
                option="command",
                value=self.command[0],
                remedy=f"log: {self.log}",
            )

    def poll(self) -> int | None:
        """Return None while the program runs, else its exit status (negative: signal).

        -SIGKILL is also returned when its supervisor has vanished.
        """
        self._listen(0)
        gone = self._supervisor is None or self._supervisor.poll() is not None
        if self.status is None and self.pid is not None and gone:
            self._listen(0)
            if self.status is None:
                self.status = -signal.SIGKILL
        return self.status

    def check(self) -> None:
        """Do nothing while the program runs.

        Raises:
            EngineError: it has ended; the message ends with its last log lines.
        """
        if self.pid is None:
            raise EngineError(f"{self.name} is not started")
        if self.poll() is not None:
            raise EngineError(self._with_log(f"{self.name} has ended: {self._ending()}"))

    def wait_ready(
        self,
        probe: Callable[[], bool],
        *,
        timeout_seconds: float,
        interval_seconds: float = 0.5,
        option: str | None = None,
    ) -> float:
        """Call `probe` until it is true; return the seconds since the start.

        An OSError of the probe means "not yet". `option` is the Kconfig symbol
        of the timeout, for the error.

        Raises:
            EngineError: the program ended (at once), or `timeout_seconds` passed.
        """
        begin = time.monotonic()
        last = ""
        with Progress(f"{self.name}: waiting until ready") as progress:
            while True:
                self.check()
                try:
                    if probe():
                        break
                except OSError as error:
                    last = f"; last answer: {error}"
                if time.monotonic() - begin >= timeout_seconds:
                    raise EngineError(
                        self._with_log(f"{self.name} is not ready{last}"),
                        option=option or "timeout_seconds",
                        value=timeout_seconds,
                        expected=f"ready within {timeout_seconds:g} s",
                        remedy="read the log; on a slow machine raise the timeout",
                    )
                self._listen(interval_seconds)
            progress.done("ready")
        return time.monotonic() - self.started_at_monotonic

    def stop(self) -> StopReport:
        """End the program and all that it started; may be called again and on a dead one.

        SIGTERM to every process of the tree, `stop_seconds` of grace, SIGKILL.
        Signals to this process wait until it is done.

        Raises:
            EngineError: something could not be ended.
        """
        if self._report is not None:
            return self._report
        with shielded():
            return self._stop()

    def _stop(self) -> StopReport:
        begin = time.monotonic()
        supervisor = self._supervisor
        swept: list[int] = []
        if supervisor is not None:
            self._tell(f"stop {self._stop_seconds}")
            deadline = begin + self._stop_seconds + 30
            with Progress(f"{self.name}: stopping"):
                while supervisor.poll() is None and time.monotonic() < deadline:
                    self._listen(0.1)
            self._listen(0)
            if supervisor.poll() is None:
                supervisor.kill()
            supervisor.wait()
            for pipe in (supervisor.stdin, supervisor.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            if self._last.get("event") != "stopped":
                swept = self._sweep()
        self._report = StopReport(
            status=self.status,
            terminated=tuple(self._last.get("terminated", ())),
            killed=(*self._last.get("killed", ()), *swept),
            segments=(
                *self._last.get("segments", ()),
                *remove_segments(self._shared_memory),
                *remove_unmapped(self._segments),
            ),
            seconds=time.monotonic() - begin,
        )
        left = self._mine()
        if left:
            listed = ", ".join(f"{item.pid} ({command_line(item.pid)[:80]})" for item in left)
            raise EngineError(
                f"{self.name} left processes that can't be ended: {listed}",
                remedy="`ps -o pid,stat,wchan,args`: one in state D waits for a device or disk",
            )
        return self._report

    def _sweep(self) -> list[int]:
        """End what a supervisor that was itself killed has left."""
        killed = []
        deadline = time.monotonic() + 15
        left = self._mine()
        while left and time.monotonic() < deadline:
            for item in left:
                with contextlib.suppress(PermissionError):
                    if send(item, signal.SIGKILL):
                        killed.append(item.pid)
            time.sleep(0.05)
            left = self._mine()
        return sorted(set(killed))

    def _mine(self) -> list[Any]:
        return run_processes(ENGINE_VARIABLE, self._engine_id, str(self.log.resolve()))

    def _listen(self, seconds: float) -> None:
        """Take in what the supervisor has said; wait up to `seconds` for it."""
        supervisor = self._supervisor
        if supervisor is None or supervisor.stdout is None or supervisor.stdout.closed:
            return
        descriptor = supervisor.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(seconds * 1000):
            return
        data = os.read(descriptor, 65536)
        if not data:
            # The pipe has ended and poll no longer waits: do not spin on it.
            time.sleep(min(seconds, 0.1))
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._last = json.loads(line)
            if self._last["event"] == "started":
                self.pid = self._last["pid"]
            elif self._last["event"] == "failed":
                self._failure = self._last["message"]
            elif self._last["event"] == "segments":
                self._segments = self._last["names"]
            elif self._last["event"] == "exited":
                self.status = self._last["status"]

    def _tell(self, line: str) -> None:
        assert self._supervisor is not None and self._supervisor.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError, ValueError):
            self._supervisor.stdin.write(line.encode() + b"\n")
            self._supervisor.stdin.flush()

    def _ending(self) -> str:
        if self.status is None or self.status >= 0:
            return f"exit status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        hint = "; often the kernel, out of memory (`dmesg`)" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"

    def _with_log(self, message: str) -> str:
        lines = log_tail(self.log)
        return "\n".join([message, f"  log:      {self.log}", *(f"  | {line}" for line in lines)])

    def __enter__(self) -> EngineProcess:
        try:
            self.start()
        except BaseException:
            # A signal held back during the start is raised at its end, and
            # then no one else would call stop().
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except EngineError as failure:
            # What went wrong first is what the user must see.
            if kind is None:
                raise
            print(f"kvseal: {failure}", file=sys.stderr)


def source_root() -> str:
    """Return the folder or zip application that this kvseal was imported from."""
    return str(Path(kvseal.__file__).resolve().parent.parent)
