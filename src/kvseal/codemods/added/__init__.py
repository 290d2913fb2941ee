# SPDX-License-Identifier: Apache-2.0
"""Modules that codemods put into upstream packages; read as bytes, never run from here.

Each is complete in itself: patched code never imports kvseal.
"""

from __future__ import annotations

from importlib.resources import files


def source_of(name: str) -> bytes:
    """Return the bytes of the module `name` in this folder, also from within a zip."""
    return files(__name__).joinpath(f"{name}.py").read_bytes()
