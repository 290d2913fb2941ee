# SPDX-License-Identifier: Apache-2.0
"""Read a stored verification back and judge it again, from its history alone.

Called by the verbs check and report. Writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import loads_strict
from kvseal.checkers.verification.document import SCHEMA, document
from kvseal.errors import EvidenceError, OptionError
from kvseal.records import verification
from kvseal.records.history import History, read_history
from kvseal.records.places import RESULT, Places
from kvseal.store import MANIFEST, verify_manifest


@dataclass(frozen=True)
class StoredVerification:
    """A verification as its history tells it.

    `report` is made anew; `notes` say where the stored one stops short of it, or
    what beside it no digest covers.
    """

    places: Places
    report: dict[str, Any]
    notes: tuple[str, ...]


def is_verification(path: Path) -> bool:
    """True when `path` is a verifier's report, or a run folder that holds one."""
    report = path / RESULT if path.is_dir() else path
    try:
        found = loads_strict(report.read_bytes())
    except (OSError, EvidenceError):
        return False
    return isinstance(found, dict) and found.get("schema") == SCHEMA


def read_verification(path: Path) -> StoredVerification:
    """Judge the verification at `path`, a report file or a run folder, again.

    Raises:
        OptionError: there is no evidence to judge by.
        EvidenceError: its files were changed, or the report is not what its history gives.
    """
    places = Places.of(path)
    if not places.history.is_file():
        raise OptionError(
            "a report without its evidence can't be judged again",
            option="RUN",
            value=str(path),
            expected=f"the folder {places.folder} beside it",
            remedy="keep report and folder together",
        )
    notes = []
    if (places.folder / MANIFEST).is_file():
        files = verify_manifest(places.folder)
        if files.missing or files.changed:
            raise EvidenceError(
                "files of the verification are not those that it wrote",
                value="; ".join(files.lines()),
                expected=f"every file with the digest in {MANIFEST}",
            )
        notes += [f"not covered by {MANIFEST}: {name}" for name in files.extra]
    else:
        notes.append(f"no {MANIFEST}: the run was killed before its end")
    history = read_history(places.history, verification.TABLE)
    report = document(history)
    stored = loads_strict(places.report.read_bytes())
    if stored != report:
        notes.append(_stops_short(places, stored, history))
    return StoredVerification(places, report, tuple(notes))


def _stops_short(places: Places, stored: Any, history: History) -> str:
    """Say how far a killed run's report got; one that no part of its history gives is refused."""
    for count in range(len(history.events) - 1, -1, -1):
        if stored == document(History(history.events[:count])):
            return f"the report stops at event {count} of {len(history.events)}: the run was killed"
    raise EvidenceError(
        "the report is not what its own history gives",
        value=str(places.report),
        remedy="run `kvseal verify` again",
    )
