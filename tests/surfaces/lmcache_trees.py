# SPDX-License-Identifier: Apache-2.0
"""LMCaches to run beside each other: the releases at hand, each as published and with all edits.

A tree is a folder with LMCache's package in it, put first on a process's path;
everything else comes from the Python that runs the tests. At hand are the
installed LMCache and the unpacked wheels in the folders that
KVSEAL_TEST_LMCACHE_TREES names, which scripts/check.py fills.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.known import known_files
from kvseal.codemods.ledger import Ledger
from kvseal.codemods.registry import CODEMODS

SOURCES = Path(__file__).resolve().parents[2] / "src"
TREES_VARIABLE = "KVSEAL_TEST_LMCACHE_TREES"


@dataclass(frozen=True)
class Tree:
    """One LMCache on disk; `path` is what stands first on a process's path."""

    version: str
    patched: bool
    path: Path

    def variables(self, **more: str) -> dict[str, str]:
        """Return the variables of a process that shall import this LMCache."""
        paths = [str(self.path), str(SOURCES), str(Path(__file__).parent)]
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": "0",
            "LMCACHE_TRACK_USAGE": "false",
            "LMCACHE_LOG_LEVEL": "WARNING",
            "DO_NOT_TRACK": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **more,
        }


def source_of(version: str) -> Path | None:
    """Return a folder that holds LMCache of this release, with or without edits."""
    folders = [Path(name) for name in os.environ.get(TREES_VARIABLE, "").split(os.pathsep) if name]
    found = importlib.util.find_spec("lmcache")
    if found is not None and found.submodule_search_locations:
        folders.append(Path(found.submodule_search_locations[0]).parent)
    return next((f for f in folders if (f / f"lmcache-{version}.dist-info").is_dir()), None)


def make_tree(source: Path, version: str, folder: Path, *, patched: bool) -> Tree:
    """Copy an LMCache and apply all of kvseal's edits to it, or undo them."""
    site_packages = folder / "lib/python3/site-packages"
    for name in (f"lmcache-{version}.dist-info", "lmcache"):
        shutil.copytree(
            source / name,
            site_packages / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
            copy_function=_copy,
        )
    _restore(source, site_packages)
    if patched:
        ours = [codemod for codemod in CODEMODS if codemod.name.startswith("lmcache_")]
        patchset.apply(Environment.find(folder), ours)
    return Tree(version, patched, site_packages)


def _copy(source: str, target: str) -> None:
    """Copy a file that may be edited, and link one that is only large."""
    if source.endswith(".so"):
        Path(target).symlink_to(Path(source).resolve())
    else:
        shutil.copy2(source, target)


def _restore(source: Path, copy: Path) -> None:
    """Undo the edits of an installed LMCache in a copy of it; kvseal keeps the originals."""
    parents = list(source.resolve().parents)
    ledger = Ledger(Environment(parents[min(2, len(parents) - 1)], source.resolve()))
    for path, item in known_files(ledger).items():
        if not path.startswith("lmcache/"):
            continue
        if item.original is None:
            (copy / path).unlink(missing_ok=True)
        else:
            (copy / path).write_bytes(ledger.blob(item.original))
