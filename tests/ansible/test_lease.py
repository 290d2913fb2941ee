# SPDX-License-Identifier: Apache-2.0
"""The node's side of a long command: when it is stopped, how, and what is left to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "playbooks" / "files" / "kvseal_lease.py"
GOES_ON = "import time\nwhile True: time.sleep(0.05)"
CLEANS_UP = """
import signal, sys, time
def stop(*_):
    print("cleaned up", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while True: time.sleep(0.05)
"""
IGNORES = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + (
    "print('ready', flush=True)\nwhile True: time.sleep(0.05)"
)
LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
"""


class Order:
    """One command under the supervisor, started as the action plugin does it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "logs" / "command.log"

    def start(self, program: str, **changes: object) -> subprocess.CompletedProcess[str]:
        order = {
            "argv": [sys.executable, "-c", program],
            "log": str(self.log),
            "chdir": "/",
            "separate_stdout": False,
            "lease_seconds": 30,
            "grace_seconds": 5,
            "time_limit_seconds": 60,
        } | changes
        return subprocess.run(
            [sys.executable, "-", json.dumps(order)],
            input=SOURCE.read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def beside(self, name: str) -> Path:
        return self.log.with_name(f"{self.log.name}.{name}")

    def wait(self) -> str:
        """Return the status line, once it is there."""
        until = time.monotonic() + 30
        while not self.beside("status").exists():
            assert time.monotonic() < until, "the command did not end"
            time.sleep(0.05)
        return self.beside("status").read_text().strip()

    def wait_for_output(self) -> str:
        until = time.monotonic() + 30
        while not self.log.read_text():
            assert time.monotonic() < until, "the command says nothing"
            time.sleep(0.05)
        return self.log.read_text()


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(tmp_path)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie is dead, whoever has yet to reap it.
    return " Z " not in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print('said')", "0 exited"),
        ("raise SystemExit(3)", "3 exited"),
        ("import os; os.kill(os.getpid(), 9)", "137 exited"),
    ],
)
def test_exit_status(order: Order, program: str, status: str) -> None:
    assert order.start(program).stdout == "started\n"
    assert order.wait() == status


def test_command_that_is_not_there(order: Order) -> None:
    order.start("", argv=["/no/such/program"])
    assert order.wait() == "127 exited"
    assert "can't start /no/such/program" in order.log.read_text()


def test_standard_output_apart(order: Order) -> None:
    order.start("import sys; print('result'); print('progress', file=sys.stderr)",
                separate_stdout=True)  # fmt: skip
    assert order.wait() == "0 exited"
    assert order.beside("stdout").read_text() == "result\n"
    assert order.log.read_text() == "progress\n"


def test_asked_to_stop_it_may_clean_up(order: Order) -> None:
    order.start(CLEANS_UP)
    order.wait_for_output()
    order.beside("stop").touch()
    assert order.wait() == "5 asked"
    assert order.log.read_text() == "ready\ncleaned up\n"


def test_stopped_when_the_lease_runs_out(order: Order) -> None:
    started = time.monotonic()
    order.start(GOES_ON, lease_seconds=1)
    assert order.wait() == "143 lease"
    assert time.monotonic() - started > 1


def test_goes_on_while_the_lease_is_renewed(order: Order) -> None:
    order.start("import time; time.sleep(3)", lease_seconds=1)
    while not order.beside("status").exists():
        order.beside("lease").touch()
        time.sleep(0.1)
    assert order.wait() == "0 exited"


def test_stopped_at_its_time_limit(order: Order) -> None:
    order.start(GOES_ON, time_limit_seconds=1)
    assert order.wait() == "143 time"


def test_killed_when_it_does_not_stop(order: Order) -> None:
    order.start(IGNORES, grace_seconds=1)
    order.wait_for_output()
    order.beside("stop").touch()
    assert order.wait() == "137 asked"


def test_nothing_of_its_process_group_is_left(order: Order) -> None:
    order.start(LEAVES_A_CHILD)
    assert order.wait() == "0 exited"
    until = time.monotonic() + 5
    while alive(int(order.log.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(int(order.log.read_text()))


def test_one_command_a_log(order: Order) -> None:
    order.start(CLEANS_UP)
    order.wait_for_output()
    second = order.start("print('intruder')")
    assert second.returncode == 75
    assert second.stdout == f"busy {order.beside('lock').read_text()}\n"
    order.beside("stop").touch()
    assert order.wait() == "5 asked"
    assert "intruder" not in order.log.read_text()
    assert order.start("print('later')").stdout == "started\n"  # and no old status is in its way
    assert order.wait() == "0 exited"
