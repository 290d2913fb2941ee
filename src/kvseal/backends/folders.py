# SPDX-License-Identifier: Apache-2.0
"""Stores that are files of a folder: how they are made, their size, and how they are emptied.

Called by the backends that keep files themselves; starts nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvseal.backends.backend import Running


def stored_bytes(folder: Path) -> int:
    """Return the sum of the sizes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def empty(folder: Path) -> None:
    """Remove everything below `folder`, which stays."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def sparse_file(path: Path, size_bytes: int) -> Path:
    """Make a file that stands for a device, without writing it; one that is there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(size_bytes)
    return path


def running_on(folder: Path, adapter: Mapping[str, Any], **more: Any) -> Running:
    """Return what is up when `adapter` keeps its objects as files below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return Running(
        adapters=(adapter,),
        on_wipe=lambda: empty(folder),
        on_size=lambda: stored_bytes(folder),
        **more,
    )
