# SPDX-License-Identifier: Apache-2.0
"""LMCache's own diff for vLLM, used in place of our query export where it applies.

LMCache checkouts may carry a unified diff that makes vLLM export intermediate
tensors. Whoever runs LMCache from git runs it as its authors do, so their diff
is preferred; where it is missing or does not apply to the installed vLLM, our
codemod is used and the reason recorded. The diff is applied by `git apply`,
which accepts moved lines but no changed context, to copies in a scratch folder.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kvseal.canonical import sha256_hex
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.errors import PatchError, PrerequisiteError


def from_checkout(
    ours: Codemod, checkout: Path, sources: Mapping[str, bytes], distribution: Distribution
) -> Codemod:
    """Return the codemod to use in place of `ours`: the checkout's diff, or `ours` with a reason.

    `sources` are the original bytes of the files `ours` edits.
    """
    if ours.lmcache_diff is None:
        return ours
    file = checkout / ours.lmcache_diff
    if not file.is_file():
        return replace(ours, source_reason=f"LMCache's checkout has no {ours.lmcache_diff}")
    commit = _git(["rev-parse", "HEAD"], checkout).strip()
    text = file.read_bytes()
    theirs = from_text(ours, text, f"lmcache {commit}")
    try:
        theirs.rewrite(distribution, sources)
    except PatchError as error:
        reason = (
            f"the diff of lmcache {commit} (SHA-256 {sha256_hex(text)}) does not apply to "
            f"{distribution.name} {distribution.version}: {error.expected or error.message}"
        )
        return replace(ours, source_reason=reason)
    return theirs


def from_text(ours: Codemod, text: bytes, source: str) -> Codemod:
    """Return `ours` with its rewriting replaced by the unified diff `text`."""

    def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
        del distribution
        return apply_diff(text, sources)

    return replace(
        ours,
        rewrite=rewrite,
        source=source,
        source_reason="LMCache comes from git and its own diff applies",
        source_text=text,
    )


def apply_diff(text: bytes, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return `sources` with the unified diff applied; it must change each of them and no other.

    Raises:
        PatchError: when it does not apply, or touches another set of files.
    """
    with tempfile.TemporaryDirectory(prefix="kvseal-diff-") as name:
        folder = Path(name)
        for path, data in sources.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        touched = _git(["apply", "--numstat", "-z", "-"], folder, text).split("\0")[:-1]
        paths = sorted(entry.split("\t")[-1] for entry in touched)
        if paths != sorted(sources):
            raise PatchError(
                "the diff changes other files than the edit it stands for",
                value=", ".join(paths),
                expected=f"changes of {', '.join(sorted(sources))} alone",
            )
        _git(["apply", "-"], folder, text)
        return {path: (folder / path).read_bytes() for path in sources}


def _git(arguments: list[str], folder: Path, given: bytes = b"") -> str:
    # A repository around the scratch folder would make git skip its files.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    } | {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            input=given,
            capture_output=True,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise PrerequisiteError(
            "git is needed to apply LMCache's diff", option="git", remedy="install git"
        ) from None
    if done.returncode != 0:
        raise PatchError(
            f"git {arguments[0]} failed",
            value=str(folder),
            expected="; ".join(done.stderr.decode(errors="replace").splitlines()),
        )
    return done.stdout.decode()
