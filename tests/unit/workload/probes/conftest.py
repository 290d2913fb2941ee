# SPDX-License-Identifier: Apache-2.0
"""Probes with everything given, for tests that change one thing."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.workload.probes import Geometry, build_probes

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "toy.py")))

L4_ROWS = [
    {"tokens": 511, "reuse_count": 1, "format": "chat"},
    {"tokens": 512, "reuse_count": 1, "format": "chat"},
    {"tokens": 513, "reuse_count": 1, "format": "chat"},
    {"tokens": 1500, "reuse_count": 3, "format": "chat"},
]


@pytest.fixture(scope="session")
def toys():
    return toy


@pytest.fixture(scope="session")
def l4_rows():
    return L4_ROWS


@pytest.fixture(scope="session")
def build():
    def make(suite="standard", chunk=256, block=16, limit=1 << 20, **changes):
        arguments = {
            "formats": ("raw", "chat"),
            "reuse_counts": (1, 3),
            "max_tokens": 16,
            "seed": 0,
            "tokenizer": toy.Words(),
            **changes,
        }
        return build_probes(suite, geometry=Geometry(chunk, block, limit), **arguments)

    return make
