# SPDX-License-Identifier: Apache-2.0
"""Action plugin: run a long command on a node and show its output line by line.

`ansible.builtin.command` is silent until its command ends and leaves it running
when the controller is interrupted. This one starts the command under
`files/kvseal_lease.py` on the node, prints each new line plainly, and stops the
command on Ctrl-C, on loss of the controller (the lease runs out), and at the
time limit. It decides nothing: the exit status comes back as `rc`, and a task
says in `failed_when` and `changed_when` what it means.

    kvseal_stream:
      argv: [command, argument]     # no shell
      python: /path/to/python       # on the node, for the supervisor
      log: /absolute/path.log       # on the node: whole output, one command at a time
      time_limit_seconds: 3600
      separate_stdout: false        # true: standard output is not shown but returned
      chdir: /                      # working directory

Returns `rc`, `ended` (exited, asked, lease, time, lost, busy, unstarted),
`log`, `seconds`, and with `separate_stdout` also `stdout`. In check mode the
command is not run. Works over any connection that can pipeline, with
ansible-core 2.15 and newer.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.text.converters import to_bytes
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

SUPERVISOR = Path(__file__).resolve().parent.parent / "files" / "kvseal_lease.py"
LEASE_SECONDS = 45
GRACE_SECONDS = 60
LONGEST_POLL_SECONDS = 1.0
BUSY_STATUS = 75

ENDINGS = {
    "exited": "ended with exit status {rc}",
    "asked": "was stopped because the controller was interrupted",
    "lease": "was stopped because the controller could not be heard for {lease} s",
    "time": "was stopped at its time limit of {limit} s",
    "lost": "lost its supervisor, which something on the node killed",
}

display = Display()


class Interrupted(BaseException):
    """The controller got SIGINT or SIGTERM. A BaseException, so that no retry swallows it."""


def _interrupt(signum: int, frame: object) -> None:
    """Raise Interrupted, once.

    Ansible ends its workers with SIGTERM right after Ctrl-C, yet waits for them
    on its way out: staying keeps the prompt away until the node is clean. So
    SIGTERM is ignored from here on, before it can cut the stopping short; a
    second Ctrl-C ends the waiting, and the node still stops by itself.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise Interrupted


class ActionModule(ActionBase):
    """See the module's text."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """Run the command; a result like `ansible.builtin.command`'s, less what was shown."""
        result = super().run(tmp, task_vars)
        _, self.order = self.validate_argument_spec(
            argument_spec={
                "argv": {"type": "list", "elements": "str", "required": True},
                "python": {"type": "str", "required": True},
                "log": {"type": "str", "required": True},
                "time_limit_seconds": {"type": "int", "required": True},
                "separate_stdout": {"type": "bool", "default": False},
                "chdir": {"type": "str", "default": "/"},
            }
        )
        if self._task.check_mode:
            result.update(
                skipped=True, rc=0, ended="exited", stdout="", msg="not run in check mode"
            )
            return result
        hosts = (task_vars or {}).get("ansible_play_hosts_all", [])
        self.prefix = f"{task_vars['inventory_hostname']}: " if len(hosts) > 1 else ""
        self.log = shlex.quote(self.order["log"])
        self.consumed_bytes = 0
        self.partial = ""
        self.controller = os.getppid()
        handlers = {s: signal.signal(s, _interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            result.update(self._run_under_lease())
        except Interrupted:
            self._stop()
            result.update(rc=130, ended="asked")
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        result["log"] = self.order["log"]
        result["changed"] = True
        result["failed"] = result["rc"] != 0
        if result["failed"] and "msg" not in result:
            result["msg"] = self._describe(result)
        return result

    def _describe(self, result: dict) -> str:
        ending = ENDINGS[result["ended"]].format(
            rc=result["rc"], lease=LEASE_SECONDS, limit=self.order["time_limit_seconds"]
        )
        command = shlex.join(self.order["argv"])
        return f"the command {ending}\n  command: {command}\n  log:     {self.order['log']}"

    def _run_under_lease(self) -> dict:
        started_at = time.monotonic()
        message = {
            **self.order,
            "lease_seconds": LEASE_SECONDS,
            "grace_seconds": GRACE_SECONDS,
        }
        start = shlex.join([self.order["python"], "-", json.dumps(message)])
        started = self._low_level_execute_command(
            f"{self._compute_environment_string()} {start}",
            in_data=SUPERVISOR.read_bytes(),
            sudoable=False,
        )
        if started["rc"] == BUSY_STATUS:
            holder = started["stdout"].split()[-1]
            return {
                "rc": 2,
                "ended": "busy",
                "msg": f"another command writes {self.order['log']} "
                f"(process {holder} on the node)\n"
                "  remedy: wait for it, or end that process",
            }
        if started["rc"] != 0:
            return {
                "rc": 2,
                "ended": "unstarted",
                "msg": f"can't start a supervisor on the node: {started['stderr'].strip()}",
            }
        display.display(f"{self.prefix}{self._task.get_name()}")
        rc, ended = self._follow(started_at)
        outcome = {"rc": rc, "ended": ended, "seconds": round(time.monotonic() - started_at, 1)}
        if self.order["separate_stdout"]:
            read = self._low_level_execute_command(f"cat {self.log}.stdout", sudoable=False)
            outcome["stdout"] = read["stdout"]
        return outcome

    def _follow(self, started_at: float) -> tuple[int, str]:
        """Show output until the command has ended; return its exit status and the reason."""
        pause_seconds = 0.1
        heard_at = time.monotonic()
        while True:
            if os.getppid() != self.controller:
                # Ansible itself was killed; this worker must not keep the lease alive.
                raise Interrupted
            try:
                state = self._poll()
            except AnsibleConnectionFailure:
                state = None
            if state is not None:
                heard_at = time.monotonic()
                if state != "running":
                    rc, ended = state.split()
                    return int(rc), ended
            elif time.monotonic() - heard_at > LEASE_SECONDS:
                return 2, "lease"
            time.sleep(pause_seconds)
            pause_seconds = min(LONGEST_POLL_SECONDS, pause_seconds * 1.3)

    def _poll(self) -> str | None:
        """Renew the lease and print new lines; return the state, or None without an answer."""
        answer = self._low_level_execute_command(
            f"touch {self.log}.lease && "
            f"{{ cat {self.log}.status 2>/dev/null || "
            f"{{ kill -0 $(cat {self.log}.lock) 2>/dev/null && echo running; }} || "
            f"cat {self.log}.status 2>/dev/null || echo 2 lost; }} && "
            f"tail -c +{self.consumed_bytes + 1} {self.log}",
            sudoable=False,
        )
        if answer["rc"] != 0:
            return None
        state, _, text = answer["stdout"].partition("\n")
        self.consumed_bytes += len(to_bytes(text, errors="surrogateescape"))
        lines = (self.partial + text).split("\n")
        self.partial = lines.pop() if state == "running" else ""
        for line in lines:
            if line.strip():
                # A progress bar redraws its line; only its last state is worth a line here.
                shown = line.rstrip("\r").rsplit("\r", 1)[-1].encode("utf-8", "replace").decode()
                display.display(f"  {self.prefix}{shown}")
        return state

    def _stop(self) -> None:
        """Ask the node to stop the command and wait for its end, saying nothing.

        Ansible has closed the way to the terminal by now.
        """
        self._low_level_execute_command(f"touch {self.log}.stop", sudoable=False)
        give_up_at = time.monotonic() + GRACE_SECONDS + 5
        while time.monotonic() < give_up_at:
            ended = self._low_level_execute_command(
                f"touch {self.log}.lease; test -e {self.log}.status", sudoable=False
            )
            if ended["rc"] == 0:
                return
            time.sleep(0.2)
