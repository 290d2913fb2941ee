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
from kvseal.records.places import Places
from kvseal.report.run_folder import REPORTS
from kvseal.store import MANIFEST, verify_manifest

FIRST_EVENT = "verification_started"


@dataclass(frozen=True)
class StoredVerification:
    """A verification as its history tells it.

    `report` is made anew; `notes` say where the stored one stops short of it, or
    what beside it no digest covers.
    """

    places: Places
    report: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the run is called, without the folders above it."""
        if self.places.report.parent == self.places.folder:
            return self.places.folder.resolve().name
        return self.places.report.name


def is_verification(path: Path) -> bool:
    """True when `path` is a verifier's report, or a folder that holds its evidence.

    A run that was killed before its first report is known by its history.
    """
    places = Places.of(path)
    try:
        if places.report.exists():
            found = loads_strict(places.report.read_bytes())
            return isinstance(found, dict) and found.get("schema") == SCHEMA
        with places.history.open("rb") as lines:
            first = loads_strict(lines.readline())
            return isinstance(first, dict) and first.get("event") == FIRST_EVENT
    except (OSError, EvidenceError):
        return False


def read_verification(path: Path) -> StoredVerification:
    """Judge the verification at `path`, a report file or a folder, again.

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
            expected=f"{places.history}",
            remedy="keep report and evidence folder together",
        )
    finished = (places.folder / MANIFEST).is_file()
    notes = _covered(places) if finished else [f"no {MANIFEST}: the run was killed before its end"]
    history = read_history(places.history, verification.TABLE)
    report = document(history)
    if not places.report.is_file():
        notes.append(f"there is no report at {places.report}")
    else:
        stored = loads_strict(places.report.read_bytes())
        if stored != report:
            notes.append(_stops_short(places, stored, history, finished=finished))
    return StoredVerification(places, report, tuple(notes))


def _covered(places: Places) -> list[str]:
    """Hold the evidence to its files.json; return a note on each file beyond it."""
    files = verify_manifest(places.folder)
    if files.missing or files.changed:
        raise EvidenceError(
            "files of the verification are not those that it wrote",
            value="; ".join(line for line in files.lines() if not line.startswith("not listed")),
            expected=f"every file with the digest in {MANIFEST}",
            remedy="bring the evidence over again from where it was made",
        )
    return [f"not covered by {MANIFEST}: {name}" for name in files.extra if name not in REPORTS]


def _stops_short(places: Places, stored: Any, history: History, *, finished: bool) -> str:
    """Say how far a killed run's report got; one that no part of its history gives is refused.

    A run that wrote its files.json wrote its whole report before.
    """
    at = stored.get("created_at") if isinstance(stored, dict) else ""
    events = history.events
    for count in range(len(events), -1, -1):
        # The report's time is that of its last event; only those need to be tried.
        last = events[count - 1].at if count else None
        if not finished and last == at and stored == document(History(events[:count])):
            return f"the report stops at event {count} of {len(events)}: the run was killed"
    raise EvidenceError(
        "the report is not what its own history gives",
        value=str(places.report),
        expected="the report that this kvseal makes of the history beside it",
        remedy="it was changed, unless another version of kvseal wrote it: check it with that one",
    )
