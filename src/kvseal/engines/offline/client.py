# SPDX-License-Identifier: Apache-2.0
"""Start an engine's process and put questions to it; the verifier's side.

The process hangs below a supervisor like every engine (kvseal.process), so it
is gone when the `with` block ends, however it ends. Knows vLLM's environment
variables, not its Python code.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kvseal.engines.offline.protocol import (
    ADDRESS_VARIABLE,
    Answer,
    EngineArguments,
    Question,
    plain,
    receive,
    send,
)
from kvseal.engines.vllm_environment import engine_environment
from kvseal.errors import EngineError
from kvseal.process import EngineProcess, Progress, source_root

START_SECONDS = 1800.0
ANSWER_SECONDS = 900.0
STOP_SECONDS = 20.0
END_SECONDS = 2.0
"""A process whose connection is closed is given so long to end, for its status."""
POLL_SECONDS = 0.2

_RUN_HOST = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from kvseal.engines.offline.host import serve; serve()"
)


class OfflineEngine:
    """A started engine. `described` is its effective configuration, as it reports it itself."""

    def __init__(self, process: EngineProcess, connection: Connection) -> None:
        self._process = process
        self._connection = connection
        self.described: dict[str, Any] = {}
        self._status: int | None = None

    def ask(self, question: Question) -> Answer:
        """Return the answer to one question.

        Raises:
            EngineError: the engine failed to answer, or has ended.
        """
        return Answer(**self._call(ANSWER_SECONDS, "answer", question=plain(question))["answer"])

    def start(self, arguments: EngineArguments, start_seconds: float = START_SECONDS) -> None:
        """Build the engine in its process and take in what it says of itself.

        Raises:
            EngineError: it can't be built; the message ends with its last log lines.
        """
        reply = self._call(start_seconds, "start", arguments=plain(arguments))
        self.described = reply["engine"]

    @property
    def status(self) -> int | None:
        """Exit status of an engine that ended by itself; None while it runs or was ended."""
        return self._status

    def stop(self) -> None:
        """Ask the engine to end, and wait a while for it to do so by itself."""
        with contextlib.suppress(OSError):
            send(self._connection, op="stop")
        deadline = time.monotonic() + STOP_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._status = self._process.poll()

    def _call(self, timeout_seconds: float, op: str, **message: Any) -> dict[str, Any]:
        try:
            send(self._connection, op=op, **message)
        except OSError:
            raise self._gone() from None
        reply = self._reply(timeout_seconds)
        if not reply["ok"]:
            raise EngineError(
                f"{self._process.name} failed: {reply['error']}",
                remedy=f"log: {self._process.log}",
            )
        return reply

    def _gone(self) -> EngineError:
        """Return the error for a connection whose other end is closed.

        Raises:
            EngineError: the process has ended, which says more than that the line went dead.
        """
        deadline = time.monotonic() + END_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self._process.check()
        return EngineError(
            f"{self._process.name} closed its connection", remedy=f"log: {self._process.log}"
        )

    def _reply(self, timeout_seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_seconds
        while not self._connection.poll(POLL_SECONDS):
            self._process.check()
            if time.monotonic() > deadline:
                raise _no_answer(self._process, timeout_seconds)
        try:
            return receive(self._connection)
        except (EOFError, OSError):
            raise self._gone() from None


@contextmanager
def started_offline(
    name: str,
    arguments: EngineArguments,
    *,
    environment: Mapping[str, str],
    log: Path,
    run_id: str,
    start_seconds: float = START_SECONDS,
) -> Iterator[OfflineEngine]:
    """Run a vLLM engine in a process of its own for a `with` block; ready when entered.

    It has `start_seconds` to come up and build the engine.

    Raises:
        EngineError: it can't be started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kvseal-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        # The folder is this user's alone, so nobody else can answer in the engine's place.
        address = str(Path(folder) / "engine")
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(POLL_SECONDS)
        command = [sys.executable, "-c", _RUN_HOST, source_root()]
        variables = {**environment, ADDRESS_VARIABLE: address}
        with EngineProcess(name, command, env=variables, log=log, run_id=run_id) as process:
            with Progress(f"{name}: starting") as progress:
                connection = Connection(_accept(listener, process, start_seconds).detach())
                engine = OfflineEngine(process, connection)
                with contextlib.ExitStack() as unless_started:
                    unless_started.callback(connection.close)
                    engine.start(arguments, start_seconds)
                    unless_started.pop_all()
                progress.done("ready")
            with connection:
                try:
                    yield engine
                finally:
                    engine.stop()


def _accept(listener: socket.socket, process: EngineProcess, seconds: float) -> socket.socket:
    deadline = time.monotonic() + seconds
    while True:
        process.check()
        try:
            return listener.accept()[0]
        except TimeoutError:
            if time.monotonic() > deadline:
                raise _no_answer(process, seconds) from None


def _no_answer(process: EngineProcess, seconds: float) -> EngineError:
    return EngineError(
        f"{process.name} gives no answer", value=f"{seconds:g} s", remedy=f"log: {process.log}"
    )


def offline_environment(
    device: str, *, cpu_kv_gib: int, visible_devices: str | None
) -> dict[str, str]:
    """Return the variables that an engine of the verifier is started with."""
    environment = engine_environment(device, cpu_kv_gib=cpu_kv_gib, visible_devices=visible_devices)
    # Scheduler, worker and connector in one process: their objects can be asked.
    environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if device == "cpu":
        # Log-probabilities go through torch.compile, which needs a C++ compiler on a CPU.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment
