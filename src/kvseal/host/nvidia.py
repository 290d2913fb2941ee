# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs, their driver and the CUDA version it supports, as nvidia-smi tells.

Asked of nvidia-smi and not of libcuda or torch, so that asking creates no CUDA
context and works before anything is installed.
"""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import dataclass

from kvseal.host.command import Answer, ask
from kvseal.host.fact import Fact, unknown

FIELDS = ("index", "uuid", "name", "memory.total", "memory.free", "driver_version", "compute_cap")

DRIVER_BY_CUDA_MAJOR = ((13, 580), (12, 525), (11, 450))
"""Lowest driver branch by CUDA major version. Source: NVIDIA, CUDA Compatibility,
"Minor Version Compatibility", table 1."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in bytes, `compute_capability` as (major, minor) or None if not told."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_free_bytes: int
    driver: str
    compute_capability: tuple[int, int] | None


def gpus() -> Fact[tuple[Gpu, ...]]:
    """Return every GPU the driver shows; unknown when there is no driver to ask."""
    query = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    return parse_gpus(ask(query), " ".join(query[:2]))


def parse_gpus(answer: Answer, source: str) -> Fact[tuple[Gpu, ...]]:
    """Read the comma separated answer of nvidia-smi."""
    if answer.reason:
        return unknown(source, answer.reason)
    found = []
    for row in csv.reader(answer.text.splitlines(), skipinitialspace=True):
        if len(row) != len(FIELDS):
            continue
        try:
            found.append(
                Gpu(
                    index=int(row[0]),
                    uuid=row[1],
                    name=row[2],
                    memory_total_bytes=int(row[3]) << 20,
                    memory_free_bytes=int(row[4]) << 20,
                    driver=row[5],
                    compute_capability=_pair(row[6]),
                )
            )
        except ValueError:
            return unknown(source, f"it answered something else: {', '.join(row)[:120]}")
    if not found:
        return unknown(source, "it lists no GPU")
    return Fact(tuple(found), source)


def cuda_version(driver: Fact[str]) -> Fact[tuple[int, int]]:
    """Return the newest CUDA version that the driver supports, as (major, minor)."""
    answer = ask(["nvidia-smi"])
    found = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)", answer.text)
    if found:
        return Fact((int(found[1]), int(found[2])), "nvidia-smi, heading")
    source = "driver version, by NVIDIA's CUDA compatibility table"
    if driver.value is None:
        return unknown(source, driver.reason)
    branch = _branch(driver.value)
    for major, lowest in DRIVER_BY_CUDA_MAJOR:
        if branch >= lowest:
            return Fact((major, 0), source)
    return unknown(source, f"driver {driver.value} is older than the table")


def driver_version(found: Fact[tuple[Gpu, ...]]) -> Fact[str]:
    """Return the version of the driver that shows the GPUs."""
    if found.value is None:
        return unknown(found.source, found.reason)
    return Fact(found.value[0].driver, found.source)


def nvcc() -> Fact[str]:
    """Return the release of the CUDA compiler on PATH or in its usual place."""
    program = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if program is None:
        return unknown("PATH, /usr/local/cuda/bin", "nvcc is not installed")
    answer = ask([program, "--version"])
    found = re.search(r"release (\d+\.\d+)", answer.text)
    if found is None:
        return unknown(f"{program} --version", answer.reason or "it names no release")
    return Fact(found[1], f"{program} --version")


def _branch(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _pair(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else None
