# SPDX-License-Identifier: Apache-2.0
"""Which model and tokenizer, exactly: a commit of a hub, or a directory hashed file by file.

A branch name or tag would let the weights change under a recorded verdict.
Called by the verifier's preflight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.errors import OptionError
from kvseal.models.directory import ModelDirectory, read_directory, require_files
from kvseal.models.hub import fetch_from_hub, refuse_mutable
from kvseal.spec.verify_request import VerifyRequest

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
        require_files(found.path, required, option=option, remedy=remedy)
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


def resolve_tokenizer(request: VerifyRequest, model: ModelDirectory) -> ModelDirectory:
    """Return the tokenizer; the model's own is not hashed again, weights and all.

    Raises: as `resolve`.
    """
    option, remedy = "--tokenizer", "name another with --tokenizer and --tokenizer-revision"
    asked = (request.tokenizer, request.tokenizer_revision)
    if asked == (request.model, request.model_revision):
        require_files(model.path, TOKENIZER_FILES, option=option, remedy=remedy)
        return model
    return resolve(*asked, option=option, required=TOKENIZER_FILES, remedy=remedy)


def position_limit(model: ModelDirectory, asked: int | None) -> int:
    """Return the limit of prompt and output together, in tokens: `asked`, or the model's own.

    Raises:
        OptionError: nothing was asked for and its config.json names none, or more was
            asked for than that.
    """
    config: dict[str, Any] = model.config()
    text = config.get("text_config")
    own = (text if isinstance(text, dict) else config).get("max_position_embeddings")
    if type(own) is not int or own < 1:
        own = asked
    if own is None:
        raise OptionError(
            "the model's config.json names no max_position_embeddings",
            option="--max-model-len",
            value=str(model.path),
            remedy="give --max-model-len",
        )
    if asked is not None and asked > own:
        raise OptionError(
            "beyond the model's own limit",
            option="--max-model-len",
            value=asked,
            expected=f"at most {own}",
            remedy="lower it, or leave it out",
        )
    return own if asked is None else asked


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
