# SPDX-License-Identifier: Apache-2.0
"""Ask an installed program about itself: its output, or why there is none.

Called by the modules beside it. Never through a shell, never longer than the
timeout, and with messages in English so that they can be read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """Output of a program, or in `reason` why it gave none."""

    text: str
    reason: str = ""


def ask(command: Sequence[str], timeout_seconds: float = 30.0) -> Answer:
    """Run `command` and return its standard output."""
    program = shutil.which(command[0])
    if program is None:
        return Answer("", f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer("", f"{command[0]} did not answer within {timeout_seconds:g} s")
    except OSError as error:
        return Answer("", f"{program} can't be run: {error.strerror}")
    if done.returncode != 0:
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        first = said[0] if said else "nothing"
        return Answer("", f"{command[0]} exited with {done.returncode} and said: {first}")
    return Answer(done.stdout)
