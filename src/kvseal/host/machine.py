# SPDX-License-Identifier: Apache-2.0
"""CPU, memory and shared memory of this machine, as far as this process may use them."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from kvseal.host import cgroup
from kvseal.host.fact import Fact, unknown


@dataclass(frozen=True)
class Space:
    """Size of a memory or file system, and what of it is free, in bytes."""

    total_bytes: int
    free_bytes: int


def cpu_model(root: Path = Path("/")) -> Fact[str]:
    """Return the name of the CPU."""
    source = "/proc/cpuinfo"
    fields = _cpuinfo(root)
    for name in ("model name", "Model", "cpu", "CPU part"):
        if name in fields:
            return Fact(fields[name], source)
    return unknown(source, "it names no model")


def cpu_flags(root: Path = Path("/")) -> Fact[tuple[str, ...]]:
    """Return the instruction set flags: `flags` on x86, `Features` on Arm."""
    source = "/proc/cpuinfo"
    fields = _cpuinfo(root)
    text = fields.get("flags") or fields.get("Features")
    if text is None:
        return unknown(source, "it has neither flags nor Features")
    return Fact(tuple(sorted(text.split())), source)


def cpu_count(root: Path = Path("/")) -> Fact[int]:
    """Return how many CPUs this process may use: affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0))
    quota = cgroup.cpu_limit(root)
    if quota is not None and quota < count:
        return Fact(max(1, math.floor(quota)), "cgroup CPU quota")
    return Fact(count, "sched_getaffinity(2)")


def memory(root: Path = Path("/")) -> Fact[Space]:
    """Return memory that can be had: the machine's, cut to the tightest cgroup limit."""
    source = "/proc/meminfo"
    fields = {}
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            fields[name] = int(rest.split()[0]) * 1024
        total, free = fields["MemTotal"], fields["MemAvailable"]
    except (OSError, ValueError, IndexError, KeyError) as error:
        return unknown(source, f"it can't be read: {error}")
    limit = cgroup.memory_limit_bytes(root)
    if limit is not None and limit < total:
        left = cgroup.memory_free_bytes(root)
        return Fact(Space(limit, min(free, limit if left is None else left)), "cgroup memory limit")
    return Fact(Space(total, free), source)


def shared_memory(path: Path = Path("/dev/shm")) -> Fact[Space]:  # noqa: S108  (that very place)
    """Return size and free space of POSIX shared memory."""
    source = f"statvfs({path})"
    try:
        state = os.statvfs(path)
    except OSError as error:
        return unknown(source, error.strerror or str(error))
    return Fact(Space(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize), source)


def architecture() -> Fact[str]:
    """Return the machine type, `x86_64` or `aarch64` for instance."""
    return Fact(platform.machine(), "uname(2)")


def system() -> Fact[str]:
    """Return the operating system, `Linux` for instance."""
    return Fact(platform.system(), "uname(2)")


def kernel() -> Fact[str]:
    """Return the kernel release."""
    return Fact(platform.release(), "uname(2)")


def _cpuinfo(root: Path) -> dict[str, str]:
    """Return the fields of the first CPU."""
    fields: dict[str, str] = {}
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return fields
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields
