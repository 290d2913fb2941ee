# SPDX-License-Identifier: Apache-2.0
"""Is an installed package what its publisher shipped? Its files against its own RECORD.

A wheel brings the SHA-256 of each of its files; whatever differs, or can be
imported beside them, was patched, rebuilt, trimmed or damaged after
installation. What was built from a source tree was published by nobody. Called
by the verifier's preflight, in the engine environment; reads files and imports
nothing.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import digest
from kvseal.models.directory import file_sha256

NAMED_FILES = 20
"""So many of the files that differ are named; all of them go into the digest."""

_COMPILED = (".so", ".pyd", ".dylib")
_IMPORTABLE = (".py", *_COMPILED)
_ELSEWHERE = re.compile(r"extra ==|Darwin")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^;\s]+)")


@dataclass(frozen=True)
class Installation:
    """A distribution as it lies on disk.

    `changed` maps a file that is not as published to its SHA-256, or to None
    where it is missing; `recorded` counts the files that carry a digest.
    `built_from` is the source tree that it was made from here, None for a wheel.
    """

    name: str
    version: str
    recorded: int
    changed: dict[str, str | None]
    built_from: str | None = None

    @property
    def stock(self) -> bool:
        """True when every file is as published."""
        return self.recorded > 0 and not self.changed and self.built_from is None

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
            "built_from": self.built_from,
        }


def version(name: str) -> str | None:
    """Return the version of an installed distribution, None when there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the version of every installed distribution, by lower-case name, sorted."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # The first on sys.path is the one that an import takes.
        found.setdefault(distribution.metadata["Name"].lower(), distribution.version)
    return dict(sorted(found.items()))


def inspect(name: str) -> Installation:
    """Hold every file of distribution `name` to its RECORD.

    Bytecode, console scripts and data without a digest are not looked at:
    installers write those. A digest that is no SHA-256 is none here. A module in
    the distribution's folders that no digest speaks for counts as changed: it
    may stand before the published one.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed.
    """
    distribution = importlib.metadata.distribution(name)
    changed: dict[str, str | None] = {}
    recorded = set()
    folders = set()
    for item in distribution.files or []:
        if item.parts[0] == ".." or any(part.endswith(".dist-info") for part in item.parts):
            continue
        if len(item.parts) > 1:
            folders.add(item.parts[0])
        if item.hash is None or item.hash.mode != "sha256":
            continue
        recorded.add(item.as_posix())
        found = _sha256(Path(str(distribution.locate_file(item))))
        if found != _hexadecimal(item.hash.value):
            changed[item.as_posix()] = found
    for folder in sorted(folders):
        for path in sorted(Path(str(distribution.locate_file(folder))).rglob("*")):
            file = path.relative_to(str(distribution.locate_file(""))).as_posix()
            if file.endswith(_IMPORTABLE) and file not in recorded and path.is_file():
                changed[file] = _sha256(path)
    return Installation(
        name, distribution.version, len(recorded), changed, _built_from(distribution)
    )


def required_version(name: str, requirement: str) -> str | None:
    """Return the exact version of `requirement` that distribution `name` asks for, or None."""
    for line in importlib.metadata.requires(name) or []:
        found = _REQUIREMENT.match(line)
        if found and found["name"].lower() == requirement and not _ELSEWHERE.search(line):
            return found["version"]
    return None


def _built_from(distribution: importlib.metadata.Distribution) -> str | None:
    """Return the source tree in the installer's note, None for a wheel. Source: PEP 610."""
    text = distribution.read_text("direct_url.json")
    origin = {} if text is None else json.loads(text)
    if "dir_info" in origin or "vcs_info" in origin:
        editable = origin.get("dir_info", {}).get("editable", False)
        return f"{origin['url']}{', editable' if editable else ''}"
    return None


def _sha256(path: Path) -> str | None:
    # Through a link too: an installer that links from its cache delivers the published bytes.
    return file_sha256(path) if path.is_file() else None


def _hexadecimal(value: str) -> str:
    """RECORD's digests are base64 for URLs without padding. Source: PEP 376, PEP 427."""
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
