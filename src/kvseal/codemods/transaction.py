# SPDX-License-Identifier: Apache-2.0
"""Bring the files of an environment to a plan, so that an interruption can be repaired.

Order: check every file; keep the originals; write the journal; change one file
after the other; write diff and record; remove the journal. Whatever stops it
between two steps, each file holds a state that record or journal names, and the
next `apply` or `revert` goes on from there. Called by `patchset` with the lock
held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.codemods.environment import Environment
from kvseal.codemods.known import Known
from kvseal.codemods.ledger import (
    JOURNAL_SCHEMA,
    RECORD_SCHEMA,
    TEMPORARY_PREFIX,
    Ledger,
    drop_compiled,
    remove_file,
    replace_file,
    write_json,
)
from kvseal.codemods.plan import Plan, changed_by_others
from kvseal.codemods.record import make_record
from kvseal.codemods.unified import unified_diff
from kvseal.errors import PatchError


@dataclass(frozen=True)
class Outcome:
    """What `apply` or `revert` did; `record` is what `patches.json` now holds."""

    changed: bool
    record: dict[str, Any]


def carry_out(
    ledger: Ledger,
    known: dict[str, Known],
    plan: Plan,
    left_out: Sequence[tuple[str, str]],
) -> Outcome:
    """Bring the environment to `plan` and write the record.

    Files in `known` that the plan does not name go back to their originals.

    Raises:
        PatchError: when a file is not ours to change (nothing is changed then),
            or a write fails (the journal stays).
    """
    environment = ledger.environment
    goals: dict[str, bytes | None] = dict(plan.finals)
    originals: dict[str, str | None] = {
        path: None if data is None else sha256_hex(data) for path, data in plan.originals.items()
    }
    for path, item in known.items():
        if path not in goals:
            originals[path] = item.original
            goals[path] = None if item.original is None else ledger.blob(item.original)
    changes = _changes(environment, known, goals, originals)

    diff = unified_diff({path: (plan.originals[path], plan.finals[path]) for path in plan.finals})
    record = make_record(environment, plan, left_out, diff)
    settled = not ledger.journal.exists() and record == ledger.load(ledger.record, RECORD_SCHEMA)
    if not changes and settled and ledger.diff.is_file() and ledger.diff.read_text() == diff:
        return Outcome(False, record)
    if not changes and not record["codemods"] and not known and not ledger.record.exists():
        return Outcome(False, record)

    keep = {ledger.put_blob(data) for data in plan.originals.values() if data is not None}
    keep |= {
        ledger.put_blob(step.codemod.source_text)
        for step in plan.codemods
        if step.codemod.source_text is not None
    }
    try:
        _write(ledger, known, originals, goals, changes)
        replace_file(ledger.diff, diff.encode())
        write_json(ledger.record, record)
        ledger.journal.unlink(missing_ok=True)
    except OSError as error:
        raise PatchError(
            "writing to the environment failed half way",
            option="--env",
            value=str(environment.root),
            expected=str(error),
            remedy="free disk space or fix permissions, then repeat the command: it continues",
        ) from error
    ledger.keep_only(keep)
    return Outcome(True, record)


def _changes(
    environment: Environment,
    known: dict[str, Known],
    goals: dict[str, bytes | None],
    originals: dict[str, str | None],
) -> list[str]:
    """Return the files that don't hold their goal yet, after checking that all are ours to change.

    A file whose package was removed or replaced is dropped from `goals`.
    """
    changes = []
    for path, goal in sorted(goals.items()):
        file = (
            environment.path(path) if (environment.site_packages / path).parent.is_dir() else None
        )
        current = sha256_hex(file.read_bytes()) if file is not None and file.is_file() else None
        wanted = None if goal is None else sha256_hex(goal)
        if current == wanted:
            continue
        item = known.get(path)
        allowed = {originals[path]} | (item.accepted if item is not None else set())
        if current is None and originals[path] is not None:
            # The package is gone, or plan.original_bytes would have refused.
            del goals[path]
            continue
        if current is not None and current not in allowed:
            if current == environment.installed_digest(path):
                # Another version was installed since: there is nothing to restore.
                del goals[path]
                continue
            raise changed_by_others(environment.site_packages / path, current, originals[path])
        changes.append(path)
    return changes


def _write(
    ledger: Ledger,
    known: dict[str, Known],
    originals: dict[str, str | None],
    goals: dict[str, bytes | None],
    changes: list[str],
) -> None:
    environment = ledger.environment
    files = []
    for path, goal in sorted(goals.items()):
        accepted = {originals[path], None if goal is None else sha256_hex(goal)}
        accepted |= known[path].accepted if path in known else set()
        files.append(
            {
                "path": path,
                "sha256_original": originals[path],
                "accepted": sorted(accepted, key=lambda digest: digest or ""),
            }
        )
    write_json(ledger.journal, {"schema": JOURNAL_SCHEMA, "files": files})
    for path in goals:
        for leftover in (environment.site_packages / path).parent.glob(f"{TEMPORARY_PREFIX}*"):
            leftover.unlink()
    for path in changes:
        file, goal = environment.site_packages / path, goals[path]
        if goal is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, goal)
    for path, goal in goals.items():
        # Also where there is no file: an interruption may have left its folder.
        if goal is None:
            remove_file(environment.site_packages / path, environment.site_packages)
    for path in goals:
        drop_compiled(environment.site_packages / path)
