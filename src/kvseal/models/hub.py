# SPDX-License-Identifier: Apache-2.0
"""A model from a hub, at one immutable commit.

A branch name would let the weights change under a recorded result, so only a
40-character commit is taken. Works without network when that commit is in the
local hub cache. Tokens come from the environment as huggingface_hub reads
them and are never recorded.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.models.directory import MODEL_OPTION, ModelDirectory, hash_files

COMMIT = re.compile(r"[0-9a-f]{40}")


def refuse_mutable(revision: str, *, option: str) -> None:
    """Refuse a revision that can name other files tomorrow.

    Raises:
        OptionError: it is not a 40-character commit.
    """
    if not COMMIT.fullmatch(revision):
        raise OptionError(
            "the model revision can change under a recorded result",
            option=f"{option}-revision" if option.startswith("--") else f"{option}_REVISION",
            value=revision,
            expected="a 40-character commit",
            remedy="look the commit up on the model's page and set it",
        )


def fetch_from_hub(name: str, revision: str, *, option: str = MODEL_OPTION) -> ModelDirectory:
    """Return the snapshot of `name` at commit `revision`, downloading what is missing.

    `option` is what named it; the one for its revision is told from that.

    Raises:
        OptionError: when `revision` is not a 40-character commit.
        PrerequisiteError: when the snapshot can't be had.
    """
    refuse_mutable(revision, option=option)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        path = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise PrerequisiteError(
            f"the model can't be fetched from the hub: {reason}",
            option=option,
            value=f"{name}@{revision}",
            remedy="check name, network and token (HF_TOKEN), or name a local directory",
        ) from error
    return ModelDirectory(path, name, revision, hash_files(path), changed=False)
