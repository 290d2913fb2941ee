# SPDX-License-Identifier: Apache-2.0
"""What LMCache's adapters on NIXL's storage plugins have in common: the POSIX plugin on files.

NIXL's wheels load and write files without a GPU. Other plugins (GDS, object
stores) get the same keys. Called by the backends of both adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.backends.needs import Module

NIXL = Module(
    "nixl._api",
    "install requirements/backends.txt (nixl and nixl-cu12) into a folder and name it",
    load=True,
)
SLOT_BYTES = 4 << 20
"""Room for an object: 64 tokens of SmolLM2-135M in float32 are 2.8 MiB."""


def parameters(folder: Path, **more: str) -> dict[str, Any]:
    """Return the part of an adapter's JSON that names the POSIX plugin and its folder."""
    return {
        "backend": "POSIX",
        "backend_params": {"file_path": str(folder), "use_direct_io": "false", **more},
    }
