# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, and arrays of KV that need neither torch nor numpy."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvseal.identity import scope
from kvseal.identity.scope import Proof, register_transform

VECTORS = Path(__file__).parents[2] / "vectors" / "transform-manifest"


@pytest.fixture(scope="session")
def vectors() -> dict[str, dict[str, Any]]:
    """All golden vectors by name."""
    found = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in VECTORS.glob("*.json")
    }
    assert len(found) >= 11
    return found


@pytest.fixture
def document(vectors: dict[str, dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """A fresh copy of a vector's manifest, to be changed at will."""
    return lambda name="query-scoped": copy.deepcopy(vectors[name]["manifest"])


@pytest.fixture
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of the test's own, as empty as a new process has it."""
    monkeypatch.setattr(scope, "_PROOFS", {})


@pytest.fixture
def codec_registered(nothing_registered: None) -> None:
    """The vectors' codec may be shared by everybody."""
    parts = ("algorithm", "parameters", "format")
    register_transform("codec", 2, proof=Proof("global", parts, "tests/unit/identity"))


class Array:
    """A row-major array of floats, with what an artifact asks of one."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32", fill: float = 1.0) -> None:
        self.shape, self.dtype = shape, dtype
        self.items = [fill] * math.prod(shape)


class Reader:
    """The ArrayReader of `Array`."""

    def is_finite(self, array: Array) -> bool:
        return all(map(math.isfinite, array.items))

    def chunks(self, array: Array) -> Iterator[bytes]:
        for item in array.items:
            yield f"{item};".encode()


@pytest.fixture
def array() -> type[Array]:
    return Array


@pytest.fixture
def reader() -> Reader:
    return Reader()
