# SPDX-License-Identifier: Apache-2.0
"""Manifests, variants and a variant index as a server writes one, for tests of the audit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvseal.audit.classify import Found
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.variant import variant_text

VECTORS = Path(__file__).parents[2] / "vectors"
RANK = "0x01000100"


@pytest.fixture(scope="session")
def manifest() -> Callable[[str], TransformManifest]:
    """The manifest of a golden vector, by its name."""

    def read(name: str = "query-scoped") -> TransformManifest:
        path = VECTORS / "transform-manifest" / f"{name}.json"
        return TransformManifest.from_json(json.loads(path.read_text("utf-8"))["manifest"])

    return read


@pytest.fixture(scope="session")
def variant(manifest: Callable[[str], TransformManifest]) -> str:
    """The variant text of the manifest that most tests use."""
    known = manifest("query-scoped")
    return variant_text(known.scope.kind, known.digest)


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., Path]:
    """Write a manifest into an index as a server does; returns its file."""

    def write(manifest: TransformManifest, salt: str = "") -> Path:
        tenant = hashlib.sha256(salt.encode()).hexdigest()
        folder = tmp_path / "index" / tenant / manifest.recipe_digest
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / "index" / ".lock").touch()
        path = folder / f"{manifest.digest}.json"
        path.write_bytes(manifest.canonical_bytes)
        return path

    return write


@pytest.fixture
def file_name() -> Callable[..., str]:
    """The name of an entry's file, as fs writes it."""

    def name(model: str, place: int, salt: str = "", variant: str = "") -> str:
        mark = f"##tv1-{variant}" if variant else ""
        digits = hashlib.sha256(b"%d" % place).hexdigest()
        end = f"@{salt}" if salt else ""
        return f"{model.replace('/', '-SEP-')}{mark}@{RANK}@0@{digits}{end}.data"

    return name


class Entries:
    """A store of given entries, without any bytes; readable as often as one likes."""

    kind = "fs"
    name = "/store"

    def __init__(self, found: Any, *, file_names: bool = True) -> None:
        self._found, self.file_names = found, file_names

    def __iter__(self) -> Iterator[Found]:
        return iter(self._found() if callable(self._found) else self._found)

    def read(self, found: Found, offset: int, size: int) -> bytes:
        return b""


@pytest.fixture
def entries() -> type[Entries]:
    return Entries
