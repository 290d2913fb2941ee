# SPDX-License-Identifier: Apache-2.0
"""A hundred thousand entries are walked in memory that does not grow with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvseal

SOURCE = Path(kvseal.__file__).parents[1]
FEW, MANY = 2_000, 100_000
BYTES_AN_ENTRY = 14
"""Twelve for the comparison of tokens, and what an array keeps in reserve."""
FIXED_BYTES = 2 << 20

WALK = """
import sys
from kvseal.audit.classify import Found
from kvseal.audit.run import audit

FEW, MANY, foreign = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "foreign"

def name(place):
    if foreign:
        return f"##tv-{place:0200}"
    mark = "##tv1-q1abcdefghijklmnopqrstuvwxyz234567" if place % 4 == 0 else ""
    salt = f"@tenant-{place % 50}" if place % 2 else ""
    digits = f"{place * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4
    return f"org-SEP-m{mark}@0x01000100@0@{digits}{salt}.data"

class Entries:
    kind, name, file_names = "fs", "/store", True
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        return (Found(name(place), 1 << 20) for place in range(self.count))

def peak_bytes(count):
    document = audit([Entries(count)])
    assert document["entries"] == count
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

print(-peak_bytes(FEW) + peak_bytes(MANY))
"""


@pytest.mark.parametrize("names", ["keys", "foreign"])
def test_memory_of_a_walk_is_bounded(names: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(FEW), str(MANY), names],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    compared = BYTES_AN_ENTRY * MANY if names == "keys" else 0
    assert int(done.stdout) < FIXED_BYTES + compared
    assert FIXED_BYTES + compared < MANY * 150  # what the names alone would take
