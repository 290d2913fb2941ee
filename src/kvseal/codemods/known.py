# SPDX-License-Identifier: Apache-2.0
"""The files kvseal has touched in an environment, and the states it can have left them in.

Read from the record and, after an interruption, the journal. Digests only, no
file contents. `patchset` and `inspection` begin with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvseal.codemods.ledger import JOURNAL_SCHEMA, RECORD_SCHEMA, Ledger


@dataclass
class Known:
    """What kvseal knows about a file it has changed: digests, None where the file is absent.

    `accepted` are the states kvseal itself can have left it in.
    """

    original: str | None
    accepted: set[str | None] = field(default_factory=set)


def known_files(ledger: Ledger) -> dict[str, Known]:
    """Return path → what record and journal say.

    Raises:
        PatchError: when one of them can't be read.
    """
    known: dict[str, Known] = {}
    record = ledger.load(ledger.record, RECORD_SCHEMA) or {"files": []}
    for entry in record["files"]:
        known[entry["path"]] = Known(entry["sha256_original"], {entry["sha256_patched"]})
    journal = ledger.load(ledger.journal, JOURNAL_SCHEMA) or {"files": []}
    for entry in journal["files"]:
        item = known.setdefault(entry["path"], Known(entry["sha256_original"]))
        item.accepted.update(entry["accepted"])
    return known


def added_folders(known: Mapping[str, Known]) -> set[str]:
    """Return the folders in site-packages that hold files added by kvseal."""
    return {path.split("/")[0] for path, item in known.items() if item.original is None}
