# SPDX-License-Identifier: Apache-2.0
"""The end of a log file, as text that is safe to show in an error.

A failed engine is diagnosed from its last lines, so they go into the message.
Called by kvseal.process.engine; never reads more than the tail of the file.
"""

from __future__ import annotations

import re
from pathlib import Path

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def log_tail(path: Path, lines: int = 20, width: int = 400, most_bytes: int = 65536) -> list[str]:
    """Return the last `lines` lines of `path` without escape sequences, each cut to `width`.

    A file that can't be read gives one line that says so.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            data = file.read()
    except OSError as error:
        return [f"(log can't be read: {error.strerror})"]
    kept = plain_lines(data)
    return [line if len(line) <= width else line[: width - 1] + "…" for line in kept[-lines:]]


def plain_lines(data: bytes) -> list[str]:
    """Return the lines of a log that hold anything, without escape sequences and control codes."""
    text = _ESCAPE.sub("", data.decode("utf-8", "replace"))
    # A progress bar rewrites its line with carriage returns: its last state counts.
    shown = [_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n")]
    return [line.rstrip() for line in shown if line.strip()]
