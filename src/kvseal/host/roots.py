# SPDX-License-Identifier: Apache-2.0
"""The folders a run writes to: can they be made and written, and how much fits.

A folder need not exist: the nearest one above it decides. Nothing is created.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvseal.host.fact import Fact, unknown


@dataclass(frozen=True)
class Root:
    """One root folder; `problem` is empty, or why it can't be used at all."""

    path: str
    existing: str
    free_bytes: int
    device: int
    noexec: bool
    problem: str


def root(path_text: str) -> Fact[Root]:
    """Return what is known of the root folder `path_text`."""
    path = Path(path_text)
    source = "statvfs(3), access(2)"
    problem = "" if path.is_absolute() else "not an absolute path"
    existing = path
    try:
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        state = os.statvfs(existing)
        device = existing.stat().st_dev
    except OSError as error:
        return unknown(source, f"{existing}: {error.strerror}")
    if not problem and not existing.is_dir():
        problem = f"{existing} is not a folder"
    elif not problem and not os.access(existing, os.W_OK | os.X_OK):
        problem = f"user {os.geteuid()} may not write in {existing}"
    elif not problem and state.f_flag & os.ST_RDONLY:
        problem = f"{existing} is on a file system that is mounted read-only"
    return Fact(
        Root(
            path=path_text,
            existing=str(existing),
            free_bytes=state.f_bavail * state.f_frsize,
            device=device,
            noexec=bool(state.f_flag & os.ST_NOEXEC),
            problem=problem,
        ),
        source,
    )
