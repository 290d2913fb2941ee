# SPDX-License-Identifier: Apache-2.0
"""A server of a backend on loopback, which can be stopped and started again on the same data.

Every start is a kvseal.process.EngineProcess, so nothing outlives the run.
Knows no particular server: the backends give command and probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvseal.process import EngineProcess


@dataclass
class LoopbackServer:
    """One server at one port; `restart` keeps port, folder and log."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    log: Path
    run_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    timeout_seconds: float = 60
    process: EngineProcess | None = None

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            EngineError: it did not come up; the message has the end of its log.
        """
        self.process = EngineProcess(
            self.name,
            self.command,
            env=self.environment,
            log=self.log,
            run_id=self.run_id,
            cwd=self.folder,
            stop_seconds=15,
        )
        self.process.start()
        self.process.wait_ready(
            self.ready, timeout_seconds=self.timeout_seconds, interval_seconds=0.05
        )

    def stop(self) -> None:
        """Stop it, if it runs, by SIGTERM first."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def restart(self) -> None:
        """Stop it in good order and start it again."""
        self.stop()
        self.start()


@contextmanager
def started(server: LoopbackServer) -> Iterator[LoopbackServer]:
    """Run `server` for the length of a `with` block."""
    try:
        server.start()
        yield server
    finally:
        server.stop()
