# SPDX-License-Identifier: Apache-2.0
"""What a codemod is: one edit to one upstream package, as data and a pure function.

A codemod never touches the disk: it gets bytes and returns bytes, so it can be
tested on text and composed with others on the same file. The modules named
`<target>_<concept>` each define one, `registry` lists them, `patchset` applies
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kvseal.codemods.environment import Distribution
from kvseal.errors import PatchError

KVSEAL_SOURCE = "kvseal"
"""`Codemod.source` of the edits that this package makes itself."""

Rewrite = Callable[[Distribution, Mapping[str, bytes]], dict[str, bytes]]


@dataclass(frozen=True)
class Codemod:
    """One edit.

    `versions` maps the names a distribution may have to the public versions the
    edit was checked against. `edited` are the files it changes, relative to
    site-packages, `edited_in` further ones that only some versions have;
    `rewrite` gets their bytes and returns new bytes for each of them, and the
    bytes of files it adds. `when_absent` says what it means that
    no such distribution is installed: `refuse` where the edit is the point of
    the environment, `skip` where it is then not needed.

    `source` tells where the edit comes from, `source_reason` why from there and
    `source_text` the text it was taken from, when that is not this package.
    `lmcache_diff` is the path, in an LMCache checkout, of a unified diff that
    may take this edit's place (`upstream_diff`).
    """

    name: str
    summary: str
    versions: Mapping[str, tuple[str, ...]]
    edited: tuple[str, ...]
    rewrite: Rewrite
    when_absent: Literal["refuse", "skip"] = "refuse"
    source: str = KVSEAL_SOURCE
    source_reason: str = ""
    source_text: bytes | None = None
    lmcache_diff: str | None = None
    edited_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def files_of(self, distribution: Distribution) -> tuple[str, ...]:
        """Return the files that are edited in this version of the distribution."""
        return self.edited + self.edited_in.get(distribution.release, ())


@dataclass(frozen=True)
class FileStep:
    """What one codemod does to one file: `before` is None where it adds the file."""

    path: str
    before: bytes | None
    after: bytes


@dataclass(frozen=True)
class PlannedCodemod:
    """A codemod with the distribution it was matched to and its effect on each file."""

    codemod: Codemod
    distribution: Distribution
    files: tuple[FileStep, ...]


def check_version(codemod: Codemod, distribution: Distribution) -> None:
    """Refuse a distribution the codemod was never checked against.

    Raises:
        PatchError: with the supported versions. A local part (`+cu129`) is
            ignored: it names a build of the same source.
    """
    supported = codemod.versions[distribution.name]
    if distribution.release in supported:
        return
    raise PatchError(
        f"{codemod.name}: {distribution.name} {distribution.version} is not a version this edit "
        "was checked against",
        option=f"installed {distribution.name}",
        value=distribution.version,
        expected=f"one of {', '.join(supported)}",
        remedy="choose a supported version in the configuration, or leave the edit out with "
        f"--without {codemod.name}",
    )


def plan_codemod(
    codemod: Codemod,
    distribution: Distribution,
    read: Callable[[Distribution, str], bytes],
    site_packages: Path,
) -> PlannedCodemod:
    """Compute what `codemod` does to `distribution`; `read` gives a file's bytes so far.

    Raises:
        PatchError: for an unsupported version, a file the distribution does not
            have, or an edit that leaves a file as it was.
        AnchorMismatchError: when the code to edit is not there exactly once.
    """
    check_version(codemod, distribution)
    sources = {path: read(distribution, path) for path in codemod.files_of(distribution)}
    results = codemod.rewrite(distribution, sources)
    steps = []
    for path, after in sorted(results.items()):
        before = sources.get(path)
        if before is None and path in distribution.record:
            raise PatchError(
                f"{codemod.name} would overwrite a file of {distribution.name}",
                option="file",
                value=str(site_packages / path),
                expected="an added file has a path of its own",
            )
        if before == after:
            raise PatchError(
                f"{codemod.name} changed nothing",
                option="file",
                value=str(site_packages / path),
                expected="source without this edit",
            )
        steps.append(FileStep(path, before, after))
    return PlannedCodemod(codemod, distribution, tuple(steps))
