# SPDX-License-Identifier: Apache-2.0
"""Limits that a container or service manager puts on this process: memory and CPUs.

A container shows the whole machine in /proc/meminfo and still gets killed at
its own limit, so the limit counts. Both cgroup versions; a limit may stand at
any level above the process. `root` stands for / and is another folder in tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes no limit as a number near 2^63; no machine has this much."""


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the tightest memory limit, or None when there is none."""
    limits = [
        limit
        for folder, version in _folders(root, "memory")
        if (limit := _number(folder / _MEMORY_LIMIT[version])) is not None
    ]
    return min((limit for limit in limits if limit < UNLIMITED_BYTES), default=None)


def memory_free_bytes(root: Path = Path("/")) -> int | None:
    """Return what may still be used below every limit, or None when there is no limit.

    Cache of files that the kernel can drop at once is not counted as used.
    """
    free = []
    for folder, version in _folders(root, "memory"):
        limit = _number(folder / _MEMORY_LIMIT[version])
        used = _number(folder / _MEMORY_USED[version])
        if limit is not None and limit < UNLIMITED_BYTES and used is not None:
            droppable = _statistic(folder / "memory.stat", _MEMORY_DROPPABLE[version])
            free.append(max(0, limit - used + droppable))
    return min(free, default=None)


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Return how many CPUs' time may be used, or None when there is no quota."""
    quotas = []
    for folder, version in _folders(root, "cpu"):
        if version == 2:
            fields = _text(folder / "cpu.max").split()
        else:
            fields = [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        with contextlib.suppress(ValueError, IndexError, ZeroDivisionError):
            quota, period = int(fields[0]), int(fields[1])
            if quota > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


_MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_MEMORY_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_MEMORY_DROPPABLE = {1: "total_inactive_file", 2: "inactive_file"}


def _folders(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield this process's cgroup folders for `controller`, innermost first."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        names, path = fields[1].split(","), fields[2]
        if fields[0] == "0" and names == [""]:
            base, version = mount, 2
        elif controller in names:
            base, version = mount / controller, 1
        else:
            continue
        folder = base / path.lstrip("/")
        while True:
            yield folder, version
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _statistic(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == name:
            return int(fields[1])
    return 0
