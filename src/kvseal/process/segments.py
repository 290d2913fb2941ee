# SPDX-License-Identifier: Apache-2.0
"""Shared-memory segments that a run of ours made, found and removed.

A segment outlives the process that made it, and a killed engine leaves
gigabytes of memory behind in /dev/shm. A segment is ours in one of two ways.
Its file name holds a name that only this run used: programs put a prefix of
their own before a name they are given. Or it came after the start of a tree of
ours that was seen to map it: on CPU vLLM's worker moves its KV cache into
`lmcache_kv_PID_N`, and its message queues are `psm_…`. The second kind is
removed only once no process at all maps it. A stranger's is never touched.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from kvseal.errors import OptionError
from kvseal.process.tree import PROC, processes

SHM = Path("/dev/shm")  # noqa: S108  (where POSIX shared memory is on Linux: shm_overview(7))

_OURS = re.compile(r"kvseal[-_][A-Za-z0-9_.-]{8,200}")


def segment_name(run_id: str) -> str:
    """Return a segment name that no other run and no other start of this run has."""
    return f"kvseal_{re.sub(r'[^A-Za-z0-9]', '_', run_id)}_{secrets.token_hex(4)}"


def segments(names: Iterable[str]) -> list[str]:
    """Return the file names in /dev/shm that hold one of `names`.

    Raises:
        OptionError: a name is not one of ours (`kvseal_` and at least 8 more characters).
    """
    wanted = [_checked(name) for name in names]
    return [name for name in sorted(present()) if any(part in name for part in wanted)]


def remove_segments(names: Iterable[str]) -> list[str]:
    """Remove the segments that hold one of `names`; return the file names removed."""
    removed = []
    for name in segments(names):
        with contextlib.suppress(OSError):
            (SHM / name).unlink()
            removed.append(name)
    return removed


def present() -> set[str]:
    """Return the file names in /dev/shm."""
    try:
        return {entry.name for entry in SHM.iterdir()}
    except OSError:
        return set()


def mapped(pid: int) -> set[str]:
    """Return the segments that process `pid` maps and that still have their name.

    Source: proc(5), /proc/[pid]/maps; a removed file ends in ` (deleted)`.
    """
    try:
        lines = (PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    paths = (line[line.find("/") :] for line in lines if "/" in line)
    beginning = f"{SHM}/"
    return {
        path.removeprefix(beginning)
        for path in paths
        if path.startswith(beginning) and not path.endswith(" (deleted)")
    }


def remove_unmapped(names: Iterable[str]) -> list[str]:
    """Remove those of `names` that no process maps any more; return them."""
    left = set(names) & present()
    if left:
        for pid in processes():
            left -= mapped(pid)
    removed = []
    for name in sorted(left):
        with contextlib.suppress(OSError):
            (SHM / name).unlink()
            removed.append(name)
    return removed


def _checked(name: str) -> str:
    if _OURS.fullmatch(name):
        return name
    raise OptionError(
        "shared-memory name is not one of ours",
        option="shared_memory",
        value=name,
        expected="`kvseal_` and at least 8 letters, digits, `_`, `.` or `-`",
        remedy="take one from kvseal.process.segment_name(run_id)",
    )
