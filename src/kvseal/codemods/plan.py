# SPDX-License-Identifier: Apache-2.0
"""What the files of an environment must hold for a chosen set of codemods.

A plan starts from the original bytes of every file, which an installed
distribution's RECORD names by digest, and applies the chosen codemods in
registry order. So it depends on the choice alone, not on what was applied
before, and edits of the same file compose. Reads the environment, writes
nothing; `patchset` is the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.codemods import upstream_diff
from kvseal.codemods.codemod import KVSEAL_SOURCE, Codemod, PlannedCodemod, plan_codemod
from kvseal.codemods.environment import Distribution, Environment
from kvseal.codemods.known import Known, added_folders
from kvseal.errors import PatchError

Blob = Callable[[str], bytes]


@dataclass(frozen=True)
class Plan:
    """The planned codemods, why others were left out, and each file before and after."""

    codemods: tuple[PlannedCodemod, ...]
    left_out: tuple[tuple[str, str], ...]
    originals: dict[str, bytes | None]
    finals: dict[str, bytes]


def make_plan(
    environment: Environment,
    codemods: Sequence[Codemod],
    known: Mapping[str, Known],
    blob: Blob,
    *,
    required: Sequence[str] = (),
    lmcache_checkout: Path | None = None,
) -> Plan:
    """Plan `codemods` for `environment`; `required` names may not be skipped as absent.

    Raises:
        PatchError: as `plan_codemod` and `original_bytes`, and where the package
            of a codemod is not installed, or twice.
    """
    planned: list[PlannedCodemod] = []
    left_out: list[tuple[str, str]] = []
    originals: dict[str, bytes | None] = {}
    finals: dict[str, bytes] = {}

    def read(distribution: Distribution, path: str) -> bytes:
        if path not in finals:
            data = original_bytes(environment, distribution, path, known, blob)
            originals[path] = data
            return data
        return finals[path]

    for codemod in codemods:
        distribution = find_distribution(environment, codemod, known)
        if distribution is None:
            reason = f"{' or '.join(codemod.versions)} is not installed"
            if codemod.when_absent == "refuse" or codemod.name in required:
                raise PatchError(
                    f"{codemod.name}: {reason}",
                    option="--env",
                    value=str(environment.root),
                    expected=f"an environment with {' or '.join(codemod.versions)}",
                    remedy=f"build the environment first, or use --without {codemod.name}",
                )
            left_out.append((codemod.name, reason))
            continue
        chosen = codemod
        if lmcache_checkout is not None and codemod.lmcache_diff is not None:
            sources = {path: read(distribution, path) for path in codemod.files_of(distribution)}
            chosen = upstream_diff.from_checkout(codemod, lmcache_checkout, sources, distribution)
        step = plan_codemod(chosen, distribution, read, environment.site_packages)
        for file in step.files:
            originals.setdefault(file.path, file.before)
            finals[file.path] = file.after
        planned.append(step)
    return Plan(tuple(planned), tuple(left_out), originals, finals)


def find_distribution(
    environment: Environment, codemod: Codemod, known: Mapping[str, Known]
) -> Distribution | None:
    """Return the installed distribution `codemod` is for.

    Raises:
        PatchError: when two distributions that own the same package are installed.
    """
    found = environment.distributions(codemod.versions, ignored=added_folders(known))
    if len(found) > 1:
        raise PatchError(
            f"{codemod.name}: the package is installed twice",
            option="--env",
            value=", ".join(f"{d.name} {d.version} ({d.dist_info})" for d in found),
            expected=f"one of {', '.join(codemod.versions)}",
            remedy="build a fresh environment; of a copied dist-info folder, remove the copy",
        )
    return found[0] if found else None


def original_bytes(
    environment: Environment,
    distribution: Distribution,
    path: str,
    known: Mapping[str, Known],
    blob: Blob,
) -> bytes:
    """Return the bytes that `path` had when `distribution` was installed.

    They are on disk, or kept by kvseal where the file holds what kvseal wrote.

    Raises:
        PatchError: when the file is missing or changed by somebody else.
    """
    recorded = distribution.record.get(path)
    file = environment.path(path)
    if recorded is None or not file.is_file():
        raise PatchError(
            f"{distribution.name} {distribution.version} has no such file",
            option="file",
            value=str(file),
            expected=f"a file with a SHA-256 in {distribution.dist_info}/RECORD",
            remedy="choose a supported version, or reinstall the package",
        )
    data = file.read_bytes()
    digest = sha256_hex(data)
    if digest == recorded:
        return data
    if path in known and digest in known[path].accepted:
        return blob(recorded)
    raise changed_by_others(file, digest, recorded)


def changed_by_others(file: Path, digest: str | None, expected: str | None) -> PatchError:
    """Return the refusal of a file that holds neither its original nor what kvseal wrote."""
    return PatchError(
        "a file to patch was changed by somebody else",
        option="file",
        value=str(file),
        expected=f"SHA-256 {expected or 'none, no file'} or what kvseal wrote; "
        f"it is {digest or 'missing'}",
        remedy="reinstall the package (or build a fresh environment), then run the command again",
    )


def codemods_of_record(
    record: Mapping[str, Any], registry: Sequence[Codemod], blob: Blob, without: Sequence[str]
) -> list[Codemod]:
    """Return the codemods a record holds, less `without`, each from the source it was taken from.

    Raises:
        PatchError: for a recorded codemod that this kvseal no longer has.
    """
    by_name = {codemod.name: codemod for codemod in registry}
    result = []
    for entry in record["codemods"]:
        if entry["name"] in without:
            continue
        codemod = by_name.get(entry["name"])
        if codemod is None:
            raise PatchError(
                "the environment holds a codemod this kvseal does not have",
                value=entry["name"],
                expected=f"one of {', '.join(by_name)}",
                remedy="revert all of them: kvseal patch revert",
            )
        if entry["source"] != KVSEAL_SOURCE:
            text = blob(entry["source_sha256"])
            codemod = upstream_diff.from_text(codemod, text, entry["source"])
        result.append(codemod)
    return result
