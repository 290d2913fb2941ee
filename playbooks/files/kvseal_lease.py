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

POLL_SECONDS = 0.1
BUSY_STATUS = 75


def main():
    """Start the order given as JSON in the one argument; print `started` or who is in the way."""
    order = json.loads(sys.argv[1])
    log = order["log"]
    os.makedirs(os.path.dirname(log), exist_ok=True)
    lock = open(log + ".lock", "a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        print("busy", lock.read().strip())
        return BUSY_STATUS
    for suffix in (".stop", ".status", ".stdout"):
        if os.path.exists(log + suffix):
            os.unlink(log + suffix)
    for path in (log, log + ".lease"):
        with open(path, "w", encoding="utf-8"):
            pass
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
    status, reason = supervise(order)
    with open(log + ".status.new", "w", encoding="utf-8") as file:
        file.write("%d %s\n" % (status, reason))
    os.rename(log + ".status.new", log + ".status")
    os._exit(0)


def supervise(order):
    """Run the command to its end; return its exit status and why it ended."""
    log = order["log"]
    with open(log, "ab") as output:
        results = open(log + ".stdout", "wb") if order["separate_stdout"] else output
        try:
            child = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=results,
                stderr=output,
                cwd=order["chdir"],
                start_new_session=True,
            )
        except OSError as error:
            output.write(("can't start %s: %s\n" % (order["argv"][0], error)).encode())
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
    if os.path.exists(log + ".stop"):
        return "asked"
    if time.monotonic() > deadline:
        return "time"
    try:
        age_seconds = time.time() - os.stat(log + ".lease").st_mtime
    except FileNotFoundError:
        return "lease"
    return "lease" if age_seconds > lease_seconds else None


if __name__ == "__main__":
    sys.exit(main())
