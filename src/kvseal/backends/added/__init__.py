# SPDX-License-Identifier: Apache-2.0
"""Files that run in other programs' processes; `copied` puts them there, none imports kvseal."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def copied(module: str, folder: Path) -> Path:
    """Write the source of `module` of this package into `folder` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}.py"
    path.write_bytes(resources.files(__name__).joinpath(path.name).read_bytes())
    return path
