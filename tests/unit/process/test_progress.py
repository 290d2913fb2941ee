# SPDX-License-Identifier: Apache-2.0
"""What a wait looks like on a terminal and in a file."""

import io
import re
import time

import pytest

from kvseal.process import progress
from kvseal.process.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(progress, "TERMINAL_SECONDS", 0.05)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.1)
    monkeypatch.setenv("TERM", "xterm")


def test_a_short_wait_says_nothing() -> None:
    stream = io.StringIO()
    with Progress("waiting", stream):
        pass
    assert stream.getvalue() == ""


def test_plain_lines_carry_the_time_and_the_state() -> None:
    stream = io.StringIO()
    with Progress("vLLM: waiting until ready", stream) as shown:
        shown.update("loading weights")
        time.sleep(0.35)
        shown.done("ready")
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 3
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d vLLM: waiting until ready: loading weights \(0 s\)", lines[0]
    )
    assert lines[-1].endswith("vLLM: waiting until ready: ready (0 s)")
    assert "\r" not in stream.getvalue()


def test_a_terminal_has_one_line_without_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with Progress("a wait with a name that is longer than the line", stream):
        time.sleep(0.3)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert all(len(part) <= 39 for part in stream.getvalue().rstrip("\n").split("\r"))


def test_an_exception_reads_failed() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="x"), Progress("waiting", stream):
        time.sleep(0.2)
        raise ValueError("x")
    assert stream.getvalue().rstrip().endswith("waiting: failed (0 s)")


def test_a_closed_stream_does_not_end_the_run() -> None:
    stream = io.StringIO()
    with Progress("waiting", stream):
        stream.close()
        time.sleep(0.25)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (61, "1 min 01 s"), (7325, "2 h 02 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert progress._duration(seconds) == text
