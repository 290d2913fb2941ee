# SPDX-License-Identifier: Apache-2.0
"""A model directory in Hugging Face form, and the digest that names its contents.

A local directory has no revision, so its files stand in for one: SHA-256 over
each file, and one digest over that table. Called by the three sources of
models beside this file; never changes a directory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kvseal.canonical import digest, loads_strict
from kvseal.errors import OptionError

MODEL_OPTION = "WORKFLOW_KNLP_LMCACHE_SNAPKV_MODEL"
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelDirectory:
    """A model on this machine.

    `revision` is what the user asked for (package version, 40-character commit,
    or the directory's own digest) and `files_sha256` the digest over all its
    files, which is what was really there.
    """

    path: Path
    name: str
    revision: str
    files: dict[str, str]
    changed: bool

    @property
    def files_sha256(self) -> str:
        """Digest over the table of file digests (canonical JSON)."""
        return digest(self.files)

    def config(self) -> dict[str, object]:
        """The model's config.json.

        Raises:
            OptionError: when it holds no JSON object.
        """
        config = loads_strict((self.path / "config.json").read_bytes())
        if not isinstance(config, dict):
            raise OptionError("config.json is not a JSON object", option=str(self.path))
        return config


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as lowercase hex."""
    with path.open("rb") as stream:
        hasher = hashlib.sha256()
        while block := stream.read(READ_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


def hash_files(path: Path) -> dict[str, str]:
    """Return {relative path: SHA-256} of every regular file below `path`, hidden ones left out."""
    relative = (
        (item, item.relative_to(path)) for item in sorted(path.rglob("*")) if item.is_file()
    )
    return {
        name.as_posix(): file_sha256(item)
        for item, name in relative
        if not any(part.startswith(".") for part in name.parts)
    }


def read_directory(
    path: Path,
    *,
    required: tuple[str, ...] = ("config.json", "tokenizer.json", "*.safetensors"),
    option: str = MODEL_OPTION,
    remedy: str = "name such a directory, or choose the packaged model",
) -> ModelDirectory:
    """Describe a local model directory, hashing every file.

    `required` are names or patterns of files it must hold; `option` and
    `remedy` stand in the error.

    Raises:
        OptionError: when one of them is not there.
    """
    require_files(path, required, option=option, remedy=remedy)
    files = hash_files(path)
    return ModelDirectory(path, path.name, f"sha256:{digest(files)}", files, changed=False)


def require_files(path: Path, required: tuple[str, ...], *, option: str, remedy: str) -> None:
    """Refuse a directory without files of these names or patterns; hashes nothing.

    Raises:
        OptionError: naming what is missing.
    """
    missing = [pattern for pattern in required if not any(path.glob(pattern))]
    if missing:
        raise OptionError(
            f"the model directory lacks {', '.join(missing)}",
            option=option,
            value=str(path),
            expected=f"a directory in Hugging Face form with {', '.join(required)}",
            remedy=remedy,
        )
