# SPDX-License-Identifier: Apache-2.0
"""Runs one command on a node for as long as the controller asks for it.

The action plugin `kvseal_stream` pipes this source into a Python (3.8 or
newer) on the node; it is never installed there and needs the standard library
alone. It leaves the connection at once and watches from the background: the
command gets SIGTERM when the controller asks (a `.stop` file), when the
controller has not renewed its lease (the `.lease` file's time) because it died
or lost the network, or when the time limit is over; whatever is left of its
process group after the grace period gets SIGKILL. One log has one command at
a time, by a lock the kernel drops when this process ends, however it ends.

Beside the log: `.lock` (locked while running, holds the process ID), `.lease`,
`.stop`, `.status` (exit status and reason, written last), `.stdout` when
standard output is wanted apart from the log.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.1
BUSY_STATUS = 75


def main():
    """Start the order given as JSON in the one argument; print `started` or who is in the way."""
    order = json.loads(sys.argv[1])
    log = Path(order["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    # Open until this process ends: closing it would drop the lock.
    lock = beside(log, "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        print("busy", lock.read().strip())
        return BUSY_STATUS
    for name in ("stop", "status", "stdout"):
        if beside(log, name).exists():
            beside(log, name).unlink()
    log.write_bytes(b"")
    beside(log, "lease").touch()
    supervisor = os.fork()
    if supervisor > 0:
        lock.truncate(0)
        lock.write(str(supervisor))
        lock.flush()
        print("started")
        return 0
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    status, reason = supervise(order, log)
    beside(log, "status.new").write_text(f"{status} {reason}\n")
    beside(log, "status.new").rename(beside(log, "status"))
    os._exit(0)


def beside(log, name):
    """Return the path of `log` with `.name` after it."""
    return log.with_name(f"{log.name}.{name}")


def supervise(order, log):
    """Run the command to its end; return its exit status and why it ended."""
    results = beside(log, "stdout") if order["separate_stdout"] else log
    with log.open("ab") as output, results.open("ab") as stdout:
        try:
            child = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=output,
                cwd=order["chdir"],
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"can't start {order['argv'][0]}: {error}\n".encode())
            return 127, "exited"
    reason = "exited"
    deadline = time.monotonic() + order["time_limit_seconds"]
    kill_at = None
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(POLL_SECONDS)
        if kill_at is None:
            stop = reason_to_stop(log, order["lease_seconds"], deadline)
            if stop is not None:
                # Only the command itself: it stops what it started in the right order.
                reason = stop
                kill_at = time.monotonic() + order["grace_seconds"]
                os.kill(child.pid, signal.SIGTERM)
        elif time.monotonic() > kill_at:
            os.killpg(child.pid, signal.SIGKILL)
    # Not reaped yet, so the process group still is this command's own.
    os.killpg(child.pid, signal.SIGKILL)
    status = child.wait()
    return (status if status >= 0 else 128 - status), reason


def reason_to_stop(log, lease_seconds, deadline):
    """Return `asked`, `lease`, `time` or None."""
    if beside(log, "stop").exists():
        return "asked"
    if time.monotonic() > deadline:
        return "time"
    try:
        age_seconds = time.time() - beside(log, "lease").stat().st_mtime
    except FileNotFoundError:
        return "lease"
    return "lease" if age_seconds > lease_seconds else None


if __name__ == "__main__":
    sys.exit(main())
