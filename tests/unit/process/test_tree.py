# SPDX-License-Identifier: Apache-2.0
"""Reading /proc, and signals that never reach a later process of the same ID."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

from kvseal.process.tree import (
    command_line,
    descendants,
    environment_of,
    output_files,
    read_process,
    send,
)


def test_a_name_with_brackets_and_spaces_is_read() -> None:
    text = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(15, b'a) (b c', 0, 0, 0);"
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = read_process(child.pid)
        assert process is not None
        assert process.name == "a) (b c"
        assert process.parent == os.getpid()
        assert process.alive
        child.kill()


def test_a_signal_goes_only_to_the_very_process() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        process = read_process(child.pid)
        assert process is not None
        later = replace(process, started_ticks=process.started_ticks + 1)
        assert send(later, signal.SIGKILL) is False
        assert child.poll() is None
        assert send(process, signal.SIGKILL) is True
        assert child.wait(10) == -signal.SIGKILL
        assert send(process, signal.SIGKILL) is False
    finally:
        child.kill()
        child.wait()


def test_descendants_environment_and_output() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & wait"],
        env={"A": "b=c"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as shell:
        try:
            while not (below := descendants([shell.pid])):
                pass
            assert [item.name for item in below] in (["sleep"], ["sh"])
            assert environment_of(shell.pid)["A"] == "b=c"
            assert output_files(shell.pid) == ["/dev/null", "/dev/null"]
            assert command_line(shell.pid).startswith("/bin/sh -c")
        finally:
            for item in below:
                send(item, signal.SIGKILL)


def test_what_is_not_there() -> None:
    pid = 2**22 + 1  # above the largest process ID of Linux: proc(5), pid_max
    assert read_process(pid) is None
    assert command_line(pid) == "?"
    assert environment_of(pid) == {}
    assert output_files(pid) == []
