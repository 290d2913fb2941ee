# SPDX-License-Identifier: Apache-2.0
"""Shared-memory segments that a run of ours made, found by name and removed.

A segment outlives the process that made it, and a killed LMCache server leaves
gigabytes of memory behind in /dev/shm. Programs put a prefix of their own
before the name they are given (`lmcache_l1_pool_NAME`), so a segment is ours
when its file name holds a name that only this run used. Anything shorter or
less particular than that is refused, so a stranger's segment is never removed.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from kvseal.errors import OptionError

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
    try:
        present = sorted(entry.name for entry in SHM.iterdir())
    except OSError:
        return []
    return [name for name in present if any(part in name for part in wanted)]


def remove_segments(names: Iterable[str]) -> list[str]:
    """Remove the segments that hold one of `names`; return the file names removed."""
    removed = []
    for name in segments(names):
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
