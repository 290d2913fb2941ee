# SPDX-License-Identifier: Apache-2.0
"""The zip application that carries kvseal to a node, the same bytes for the same source.

Entries are sorted, stored without compression (zlib's output differs between
its versions) and carry one fixed time, so the digest in a run spec names the
source and nothing else. Called by `kvseal spec`; runs where a checkout is.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

from kvseal import canonical
from kvseal.errors import OptionError

_MAIN = """\
# Entry of the zip application; see kvseal/__main__.py.
import sys

from kvseal.cli import main

sys.exit(main())
"""
_TIME = (1980, 1, 1, 0, 0, 0)


def archive_bytes(package: Path) -> bytes:
    """Return the zip application made of the package folder `package`.

    Raises:
        OptionError: `package` is no Python package.
    """
    if not (package / "__init__.py").is_file():
        raise OptionError(
            "no Python package to put into the archive",
            option=str(package),
            expected="the folder src/kvseal of a checkout",
            remedy="run this from a checkout, not from an archive",
        )
    files = {
        f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    files["__main__.py"] = _MAIN.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3  # Unix, whatever this is built on
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def write_archive(package: Path, folder: Path) -> tuple[Path, str]:
    """Write `kvseal-<first 12 hex>.pyz` into `folder`; return its path and SHA-256.

    An archive that is there already is kept: its name says what is in it.
    """
    data = archive_bytes(package)
    sha256 = canonical.sha256_hex(data)
    path = folder / f"{package.name}-{sha256[:12]}.pyz"
    if not (path.is_file() and canonical.sha256_hex(path.read_bytes()) == sha256):
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{path.name}.{os.getpid()}"
        unfinished.write_bytes(data)
        unfinished.replace(path)
    return path, sha256
