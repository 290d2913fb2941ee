# SPDX-License-Identifier: Apache-2.0
"""Compare an environment with its patch record, changing nothing.

Used by `kvseal patch status|diff` and before a record is copied into a run
folder. Needs no LibCST: it compares digests only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.codemods.environment import Environment
from kvseal.codemods.known import added_folders, known_files
from kvseal.codemods.ledger import JOURNAL_SCHEMA, RECORD_SCHEMA, Ledger
from kvseal.codemods.record import empty_record


@dataclass(frozen=True)
class Inspection:
    """The record, the diff kept with it, each file's state, and what does not fit.

    A file's state is `patched`, `original`, `missing` or `changed`; a path maps
    to it. `problems` is empty when record and reality agree.
    """

    record: dict[str, Any]
    diff: str
    files: dict[str, str]
    problems: list[str]


def inspect(environment: Environment) -> Inspection:
    """Return how `environment` compares with its record.

    Raises:
        PatchError: when the record can't be read.
    """
    ledger = Ledger(environment)
    record = ledger.load(ledger.record, RECORD_SCHEMA)
    journal = ledger.load(ledger.journal, JOURNAL_SCHEMA)
    problems = []
    if journal is not None:
        problems.append("a change was interrupted; kvseal patch apply or revert completes it")
    if record is None:
        record = empty_record(environment)
        diff = ""
    else:
        diff = ledger.diff.read_text("utf-8") if ledger.diff.is_file() else ""
        if sha256_hex(diff.encode()) != record["diff_sha256"]:
            problems.append(f"{ledger.diff} does not belong to the record")
    expected = {entry["path"]: entry for entry in record["files"]}
    for entry in (journal or {"files": []})["files"]:
        expected.setdefault(entry["path"], {**entry, "sha256_patched": None})
    files = {path: _state(environment, entry) for path, entry in sorted(expected.items())}
    problems += [
        f"{path} is {state}, recorded as patched"
        for path, state in files.items()
        if state != "patched"
    ]
    ignored = added_folders(known_files(ledger))
    for codemod in record["codemods"]:
        installed = environment.distributions([codemod["distribution"]], ignored=ignored)
        version = installed[0].version if len(installed) == 1 else None
        if version != codemod["version"]:
            problems.append(
                f"{codemod['name']} was made for {codemod['distribution']} {codemod['version']}, "
                f"installed is {version or 'none'}"
            )
    return Inspection(record, diff, files, problems)


def _state(environment: Environment, entry: dict[str, Any]) -> str:
    file = environment.site_packages / entry["path"]
    if not file.is_file():
        return "missing" if entry["sha256_original"] is not None else "original"
    digest = sha256_hex(file.read_bytes())
    if digest == entry["sha256_patched"]:
        return "patched"
    return "original" if digest == entry["sha256_original"] else "changed"
