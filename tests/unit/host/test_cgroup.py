# SPDX-License-Identifier: Apache-2.0
"""Limits of both cgroup versions, at any level, from an invented file system."""

from pathlib import Path

from kvseal.host import cgroup

GIB = 1 << 30


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_version_2_takes_the_tightest_level(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/unit",
            "sys/fs/cgroup/slice/memory.max": str(4 * GIB),
            "sys/fs/cgroup/slice/memory.current": str(3 * GIB),
            "sys/fs/cgroup/slice/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
            "sys/fs/cgroup/slice/unit/memory.max": "max",
            "sys/fs/cgroup/slice/unit/memory.current": str(GIB),
            "sys/fs/cgroup/slice/unit/cpu.max": "150000 100000",
            "sys/fs/cgroup/slice/cpu.max": "max 100000",
        },
    )
    assert cgroup.memory_limit_bytes(tmp_path) == 4 * GIB
    assert cgroup.memory_free_bytes(tmp_path) == GIB + GIB // 2
    assert cgroup.cpu_limit(tmp_path) == 1.5


def test_version_1(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/",
            "sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            "sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroup.memory_limit_bytes(tmp_path) == 2 * GIB
    assert cgroup.memory_free_bytes(tmp_path) == GIB
    assert cgroup.cpu_limit(tmp_path) == 0.5


def test_no_limit_and_no_cgroups(tmp_path: Path) -> None:
    assert cgroup.memory_limit_bytes(tmp_path) is None
    assert cgroup.memory_free_bytes(tmp_path) is None
    assert cgroup.cpu_limit(tmp_path) is None
    put(tmp_path, {"proc/self/cgroup": "odd line\n0::/", "sys/fs/cgroup/cpu.max": "max 100000"})
    assert cgroup.memory_limit_bytes(tmp_path) is None
    assert cgroup.cpu_limit(tmp_path) is None


def test_a_path_out_of_the_mount_ends(tmp_path: Path) -> None:
    put(tmp_path, {"proc/self/cgroup": "0::/../../elsewhere"})
    assert cgroup.memory_limit_bytes(tmp_path) is None
