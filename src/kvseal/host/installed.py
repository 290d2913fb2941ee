# SPDX-License-Identifier: Apache-2.0
"""Is an installed package what its publisher shipped? Its files against its own RECORD.

A wheel brings the SHA-256 of each of its files; whatever differs was patched,
rebuilt, trimmed or damaged after installation. Called by the verifier's
preflight, in the engine environment; reads files and imports nothing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import digest
from kvseal.store import file_digest

NAMED_FILES = 20
"""So many of the files that differ are named; all of them go into the digest."""

_COMPILED = (".so", ".pyd", ".dylib")
_ELSEWHERE = re.compile(r"extra ==|Darwin")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^;\s]+)")


@dataclass(frozen=True)
class Installation:
    """A distribution as it lies on disk.

    `changed` maps a file that is not as published to its SHA-256, or to None
    where it is missing; `recorded` counts the files that carry a digest.
    """

    name: str
    version: str
    recorded: int
    changed: dict[str, str | None]

    @property
    def stock(self) -> bool:
        """True when every file is as published."""
        return self.recorded > 0 and not self.changed

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in reports: compiled files and some others by name."""
        compiled = {
            name: found
            for name, found in self.changed.items()
            if name.endswith(_COMPILED) and found is not None
        }
        others = sorted(set(self.changed) - set(compiled))
        return {
            "name": self.name,
            "version": self.version,
            "recorded_files": self.recorded,
            "changed_files": sum(found is not None for found in self.changed.values()),
            "missing_files": sum(found is None for found in self.changed.values()),
            "changed_sha256": digest(self.changed) if self.changed else None,
            "changed_compiled": compiled,
            "changed_some": others[:NAMED_FILES],
        }


def version(name: str) -> str | None:
    """Return the version of an installed distribution, None when there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def inspect(name: str) -> Installation:
    """Hold every file of distribution `name` to its RECORD.

    Bytecode, console scripts and files without a digest are not looked at:
    installers write those.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed.
    """
    distribution = importlib.metadata.distribution(name)
    changed: dict[str, str | None] = {}
    recorded = 0
    for item in distribution.files or []:
        outside = item.parts[0] == ".."
        if item.hash is None or item.hash.mode != "sha256" or outside:
            continue
        if any(part.endswith(".dist-info") for part in item.parts):
            continue
        recorded += 1
        found = _sha256(Path(str(distribution.locate_file(item))))
        if found != _hexadecimal(item.hash.value):
            changed[item.as_posix()] = found
    return Installation(name, distribution.version, recorded, changed)


def required_version(name: str, requirement: str) -> str | None:
    """Return the exact version of `requirement` that distribution `name` asks for, or None."""
    for line in importlib.metadata.requires(name) or []:
        found = _REQUIREMENT.match(line)
        if found and found["name"].lower() == requirement and not _ELSEWHERE.search(line):
            return found["version"]
    return None


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    if path.is_symlink():
        # An installer that links from its cache still delivers the published bytes.
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return str(file_digest(path)["sha256"])


def _hexadecimal(value: str) -> str:
    """RECORD's digests are base64 for URLs without padding. Source: PEP 376, PEP 427."""
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
