# SPDX-License-Identifier: Apache-2.0
"""CPU and memory, from invented files and from this machine."""

import os
from pathlib import Path

from kvseal.host import machine

GIB = 1 << 30


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_x86_and_arm_flags(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "model name\t: EPYC\nflags\t\t: fma avx2\n\nflags : none\n")
    assert machine.cpu_model(tmp_path).value == "EPYC"
    assert machine.cpu_flags(tmp_path).value == ("avx2", "fma")
    put(tmp_path, "proc/cpuinfo", "Features\t: fp asimd\nCPU part\t: 0xd40\n")
    assert machine.cpu_model(tmp_path).value == "0xd40"
    assert machine.cpu_flags(tmp_path).value == ("asimd", "fp")


def test_files_that_are_missing_make_unknown_facts(tmp_path: Path) -> None:
    for fact in (
        machine.cpu_model(tmp_path),
        machine.cpu_flags(tmp_path),
        machine.memory(tmp_path),
        machine.shared_memory(tmp_path / "none"),
    ):
        assert fact.value is None
        assert fact.reason


def test_memory_is_cut_to_the_container(tmp_path: Path) -> None:
    put(
        tmp_path,
        "proc/meminfo",
        f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\n",
    )
    fact = machine.memory(tmp_path)
    assert fact.value == machine.Space(64 * GIB, 60 * GIB)
    assert fact.source == "/proc/meminfo"
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/memory.max", str(8 * GIB))
    put(tmp_path, "sys/fs/cgroup/memory.current", str(2 * GIB))
    fact = machine.memory(tmp_path)
    assert fact.value == machine.Space(8 * GIB, 6 * GIB)
    assert fact.source == "cgroup memory limit"


def test_a_cpu_quota_counts(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000")
    assert machine.cpu_count(tmp_path).value == 1


def test_this_machine_answers() -> None:
    assert machine.cpu_count().value in range(1, len(os.sched_getaffinity(0)) + 1)
    assert machine.system().value == "Linux"
    memory = machine.memory().value
    assert memory is not None
    assert 0 < memory.free_bytes <= memory.total_bytes
