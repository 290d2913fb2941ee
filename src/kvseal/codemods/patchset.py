# SPDX-License-Identifier: Apache-2.0
"""Apply, revert and inspect the codemods of an engine environment.

`apply` makes the environment carry exactly the chosen codemods, whatever it
carried before; `revert` takes some or all away, down to the original bytes.
Both do nothing when nothing is to be done, refuse before the first write when
any file is not as it must be, and pick up after a change that was interrupted
half way. `status` compares record and reality. Never imports an engine; the
callers are `kvseal patch` and, for `export_record`, the drivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Environment
from kvseal.codemods.inspection import inspect
from kvseal.codemods.known import known_files
from kvseal.codemods.ledger import RECORD_SCHEMA, Ledger, replace_file, write_json
from kvseal.codemods.plan import codemods_of_record, make_plan
from kvseal.codemods.record import empty_record
from kvseal.codemods.transaction import Outcome, carry_out
from kvseal.errors import OptionError, PatchError


def apply(
    environment: Environment,
    codemods: Sequence[Codemod],
    *,
    left_out: Sequence[tuple[str, str]] = (),
    required: Sequence[str] = (),
    lmcache_checkout: Path | None = None,
) -> Outcome:
    """Make `environment` carry exactly `codemods`.

    `left_out` are names with reasons, for the record. `required` names must be
    applicable. With `lmcache_checkout` the diff in it is preferred where it
    applies (`upstream_diff`).

    Raises:
        PatchError, AnchorMismatchError: before anything was changed; or, for a
            failed write, with the change half made and the journal in place.
    """
    ledger = Ledger(environment)
    with ledger.locked():
        known = known_files(ledger)
        plan = make_plan(
            environment,
            codemods,
            known,
            ledger.blob,
            required=required,
            lmcache_checkout=lmcache_checkout,
        )
        return carry_out(ledger, known, plan, left_out)


def revert(
    environment: Environment, registry: Sequence[Codemod], names: Sequence[str] = ()
) -> Outcome:
    """Take the codemods `names` (empty: all) out of `environment`.

    `registry` is needed to make the remaining edits again where two share a file.

    Raises:
        OptionError: for a name that is not applied.
        PatchError: as `apply`.
    """
    ledger = Ledger(environment)
    if not ledger.folder.is_dir() and not names:
        return Outcome(False, empty_record(environment))
    with ledger.locked():
        record = ledger.load(ledger.record, RECORD_SCHEMA) or {"codemods": []}
        applied = [entry["name"] for entry in record["codemods"]]
        for name in names:
            if name not in applied:
                raise OptionError(
                    "the codemod is not applied",
                    option="--only",
                    value=name,
                    expected=f"one of {', '.join(applied) or '(none is applied)'}",
                )
        known = known_files(ledger)
        remaining = codemods_of_record(record, registry, ledger.blob, names) if names else []
        plan = make_plan(environment, remaining, known, ledger.blob)
        left_out = [(name, "reverted") for name in names]
        return carry_out(ledger, known, plan, left_out)


def export_record(environment: Environment, folder: Path) -> dict[str, Any]:
    """Write `patches.json` and `patches.diff` of `environment` into `folder`; return the record.

    An unpatched environment gives a record without codemods and an empty diff,
    so a run folder always says what its engines were.

    Raises:
        PatchError: when record and reality differ.
    """
    found = inspect(environment)
    if found.problems:
        raise PatchError(
            "the environment is not as its patch record says",
            option="--env",
            value=str(environment.root),
            expected="; ".join(found.problems),
            remedy="kvseal patch apply",
        )
    write_json(folder / "patches.json", found.record)
    replace_file(folder / "patches.diff", found.diff.encode())
    return found.record
