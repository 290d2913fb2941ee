# SPDX-License-Identifier: Apache-2.0
"""What is being waited for and for how long, on standard error.

On a terminal one line is rewritten every half second; elsewhere a line with
the time of day comes at the start of a long wait, every 15 seconds, and at its
end. Nothing is printed for what takes less than 2 seconds. Evidence never
depends on this: it is for the eye only. Called by whoever waits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

QUIET_SECONDS = 2.0
TERMINAL_SECONDS = 0.5
PLAIN_SECONDS = 15.0

_lock = threading.Lock()
_active: list[Progress] = []


class Progress:
    """Shows a wait while a `with` block runs.

    `what` names it ("vLLM: waiting until ready"); `update` adds where it
    stands; `done` replaces both in the last line. Several at a time share one
    terminal line.
    """

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self.what = what
        self.stream = sys.stderr if stream is None else stream
        self.terminal = _is_terminal(self.stream)
        self._state = ""
        self._result = ""
        self._started = 0.0
        self._shown = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the block was entered."""
        return time.monotonic() - self._started

    def update(self, state: str) -> None:
        """Say where the wait stands, for instance "12 of 40 prompts"."""
        self._state = state

    def done(self, result: str) -> None:
        """Say how it ended; without it the last line is "done", or "failed" on an exception."""
        self._result = result

    def __enter__(self) -> Progress:
        self._started = time.monotonic()
        with _lock:
            _active.append(self)
        self._thread = threading.Thread(target=self._run, daemon=True, name="progress")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        with _lock:
            _active.remove(self)
            if self._shown:
                self._write_end("failed" if kind else self._result or "done")

    def _run(self) -> None:
        wait = QUIET_SECONDS
        while not self._ended.wait(wait):
            with _lock:
                if self.terminal:
                    self._rewrite(" · ".join(item._line() for item in _active if item.terminal))
                    wait = TERMINAL_SECONDS
                else:
                    self._print(f"{_clock()} {self._line()}\n")
                    wait = PLAIN_SECONDS
                self._shown = True

    def _line(self) -> str:
        state = f": {self._state}" if self._state else ""
        return f"{self.what}{state} ({_duration(self.elapsed_seconds)})"

    def _write_end(self, result: str) -> None:
        text = f"{self.what}: {result} ({_duration(self.elapsed_seconds)})"
        if self.terminal:
            self._rewrite(text)
            self._print("\n")
        else:
            self._print(f"{_clock()} {text}\n")

    def _rewrite(self, text: str) -> None:
        width = max(20, shutil.get_terminal_size().columns - 1)
        line = text if len(text) <= width else text[: width - 1] + "…"
        # Blanks, not an escape sequence: a dumb terminal and NO_COLOR both keep plain text.
        self._print("\r" + line.ljust(width) + "\r" + line)

    def _print(self, text: str) -> None:
        # A closed or full standard error must not end a run.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
