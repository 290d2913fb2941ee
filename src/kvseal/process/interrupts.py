# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP as one exception, once, and never inside a cleanup.

A driver wraps its whole work in `Interrupts()`. The first signal raises
`Interrupted` in the main thread; what follows (stopping engines, writing the
last history line) must run to its end, so later signals only say that it does.
`shielded()` marks such a section for the case that the first signal comes in
the middle of it: it is then raised when the section ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_current: Interrupts | None = None


class Interrupted(KeyboardInterrupt):
    """The run was asked to end; `signal_name` is `SIGINT`, `SIGTERM` or `SIGHUP`."""

    def __init__(self, number: int) -> None:
        self.signal_number = number
        self.signal_name = signal.Signals(number).name
        super().__init__(self.signal_name)


class Interrupts:
    """Handlers for the three signals while a `with` block runs; main thread only.

    A signal that was ignored on entry (nohup, a shell's background job) stays
    ignored. The former handlers stand again afterwards.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._raised = False
        self._depth = 0
        self._former: dict[int, Any] = {}
        self._outer: Interrupts | None = None

    def __enter__(self) -> Interrupts:
        # Signal handlers belong to the process, and so does this.
        global _current
        for number in SIGNALS:
            former = signal.getsignal(number)
            if former is not signal.SIG_IGN:
                self._former[number] = former
                signal.signal(number, self._handle)
        self._outer, _current = _current, self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _current  # noqa: PLW0603
        for number, former in self._former.items():
            signal.signal(number, former)
        _current = self._outer

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Hold back `Interrupted` until this block has ended."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._raise_if_due()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            if self._depth:
                _tell(f"{signal.Signals(number).name}: ending as soon as this step is safe")
        else:
            _tell("already ending: stopping engines and writing the record, please wait")
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self.first is not None and not self._raised and self._depth == 0:
            self._raised = True
            raise Interrupted(self.first)


def _tell(text: str) -> None:
    # print() is not safe in a handler that may have interrupted a print.
    try:
        os.write(2, f"\nkvseal: {text}\n".encode())
    except OSError:
        return


@contextmanager
def shielded() -> Iterator[None]:
    """Hold back `Interrupted` of the innermost Interrupts, if there is one, for a block.

    Python runs signal handlers in the main thread alone, so elsewhere this does nothing.
    """
    if _current is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _current.shielded():
        yield
