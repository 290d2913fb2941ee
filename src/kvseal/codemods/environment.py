# SPDX-License-Identifier: Apache-2.0
"""A Python environment seen from outside: site-packages, distributions, RECORD digests.

Found by looking at files, so that any Python can inspect any environment; never
imports a package of the environment and never writes to it. `patchset` and the
codemods are its callers.
"""

from __future__ import annotations

import base64
import csv
import email.parser
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvseal.errors import PatchError

INSTALLER_NAME = "kvseal"
"""What the INSTALLER file of a dist-info made by kvseal holds (PyPA "recording installs")."""


@dataclass(frozen=True)
class Distribution:
    """An installed distribution.

    `name` is normalised (lower case, dashes), `dist_info` the name of its
    folder in site-packages. `record` maps files, relative to site-packages, to
    the SHA-256 they had when installed, as lowercase hex.
    """

    name: str
    version: str
    dist_info: str
    record: Mapping[str, str]

    @property
    def release(self) -> str:
        """The version without its local part: `0.28.0` of `0.28.0+cpu`."""
        return self.version.split("+")[0]


@dataclass(frozen=True)
class Environment:
    """A virtual environment: its folder and its one site-packages folder."""

    root: Path
    site_packages: Path

    @classmethod
    def find(cls, root: Path) -> Environment:
        """Open the environment at `root`.

        Raises:
            PatchError: unless `root` holds exactly one `lib/python3*/site-packages`.
        """
        found = sorted(root.glob("lib/python3*/site-packages"))
        if len(found) != 1:
            raise PatchError(
                "not a Python environment with one site-packages folder",
                option="--env",
                value=str(root),
                expected=f"one {root}/lib/python3*/site-packages, found {len(found)}",
                remedy="build the environment first (the stage build), or name it with --env",
            )
        return cls(root.resolve(), found[0].resolve())

    def distributions(
        self, names: Iterable[str], *, ignored: Container[str] = ()
    ) -> list[Distribution]:
        """Return the installed distributions called one of `names`, kvseal's aliases left out.

        `ignored` are dist-info folders that kvseal was adding or removing when
        it was interrupted, so that their INSTALLER may be missing.

        Raises:
            PatchError: when one of them lacks METADATA or RECORD.
        """
        wanted = set(names)
        found = []
        for folder in sorted(self.site_packages.glob("*.dist-info")):
            name = normalised(folder.name.split("-")[0])
            if name not in wanted or folder.name in ignored:
                continue
            installer = folder / "INSTALLER"
            if installer.is_file() and installer.read_text("utf-8").strip() == INSTALLER_NAME:
                continue
            found.append(_read_distribution(folder))
        return found

    def installed_digest(self, relative: str) -> str | None:
        """Return the SHA-256 under which some distribution's RECORD lists a file, or None."""
        for record in sorted(self.site_packages.glob("*.dist-info/RECORD")):
            digest = parse_record(record.read_text("utf-8")).get(relative)
            if digest is not None:
                return digest
        return None

    def path(self, relative: str) -> Path:
        """Return the absolute path of a file in site-packages.

        Raises:
            PatchError: when it would lie outside of the environment.
        """
        path = self.site_packages / relative
        if not path.parent.resolve().is_relative_to(self.root):
            raise PatchError(
                "a file to edit lies outside of the environment",
                option="file",
                value=str(path),
                expected=f"a file below {self.root}",
                remedy="install the package into the environment itself, not as a link",
            )
        return path


def normalised(name: str) -> str:
    """Return a distribution name in its normal form. Source: PyPA name normalization."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_distribution(folder: Path) -> Distribution:
    metadata, record = folder / "METADATA", folder / "RECORD"
    for file in (metadata, record):
        if not file.is_file():
            raise PatchError(
                "an installed distribution is incomplete",
                option="file",
                value=str(file),
                expected="METADATA and RECORD in every dist-info folder",
                remedy="reinstall the package",
            )
    headers = email.parser.BytesHeaderParser().parsebytes(metadata.read_bytes())
    return Distribution(
        name=normalised(str(headers["Name"])),
        version=str(headers["Version"]),
        dist_info=folder.name,
        record=parse_record(record.read_text("utf-8")),
    )


def parse_record(text: str) -> dict[str, str]:
    """Return path → SHA-256 (lowercase hex) of the entries that have such a digest."""
    digests = {}
    for row in csv.reader(text.splitlines()):
        if len(row) >= 2 and row[1].startswith("sha256="):
            value = row[1].removeprefix("sha256=")
            digests[row[0]] = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    return digests
