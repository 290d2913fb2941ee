# SPDX-License-Identifier: Apache-2.0
"""Which model and tokenizer, exactly: a commit of a hub, or a directory hashed file by file.

A branch name or tag would let the weights change under a recorded verdict.
Called by the verifier's preflight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.errors import OptionError
from kvseal.models.directory import ModelDirectory, read_directory
from kvseal.models.hub import fetch_from_hub, refuse_mutable

MODEL_FILES = ("config.json", "*.safetensors")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def refuse(name: str, revision: str, *, option: str) -> None:
    """Refuse, before anything is read, a directory that is not there or a revision that can change.

    Raises:
        OptionError: either.
    """
    if Path(name).expanduser().is_dir():
        return
    if name.startswith(("/", "./", "../", "~")):
        raise OptionError(
            "no such directory",
            option=option,
            value=name,
            expected="a model directory",
            remedy="correct the path, or name a hub repository and its commit",
        )
    refuse_mutable(revision, option=option)


def resolve(
    name: str, revision: str, *, option: str, required: tuple[str, ...], remedy: str
) -> ModelDirectory:
    """Return what `name` is, on this machine.

    `name` is a directory or a hub repository; `revision` is the repository's
    commit. For a directory it is empty, or `sha256:…` that its files must have.

    Raises:
        OptionError: the revision can change, is another directory's, or files are missing.
        PrerequisiteError: the hub's snapshot can't be had.
    """
    refuse(name, revision, option=option)
    path = Path(name).expanduser()
    if not path.is_dir():
        found = fetch_from_hub(name, revision, option=option)
        read_directory(found.path, required=required, option=option, remedy=remedy)
        return found
    found = read_directory(path.resolve(), required=required, option=option, remedy=remedy)
    if revision not in ("", found.revision):
        raise OptionError(
            "a directory has no revision but the digest of its files",
            option=f"{option}-revision",
            value=revision,
            expected=found.revision,
            remedy="leave it out, or give that digest to pin the directory",
        )
    return found


def position_limit(model: ModelDirectory) -> int:
    """Return the model's own limit of prompt and output together, in tokens.

    Raises:
        OptionError: its config.json names none.
    """
    config: dict[str, Any] = model.config()
    text = config.get("text_config")
    limit = (text if isinstance(text, dict) else config).get("max_position_embeddings")
    if not isinstance(limit, int) or limit < 1:
        raise OptionError(
            "the model's config.json names no max_position_embeddings",
            option="--max-model-len",
            value=str(model.path),
            remedy="give --max-model-len",
        )
    return limit


def described(requested: str, revision: str, found: ModelDirectory) -> dict[str, Any]:
    """Return requested and resolved identity for the report."""
    return {
        "requested": requested,
        "requested_revision": revision,
        "path": str(found.path),
        "revision": found.revision,
        "files": found.files,
        "files_sha256": found.files_sha256,
    }
