# SPDX-License-Identifier: Apache-2.0
"""Where a verification keeps what it saw, and a report that is whole at every moment.

History and engine logs go into a folder beside the report; the report is made
anew from the history after each probe and moved onto its place in one step, so
whoever reads it, at whatever time and after whatever end, finds valid JSON that
claims no more than was seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal import store
from kvseal.checkers.verification.document import document
from kvseal.errors import KvsealError, OptionError
from kvseal.process import Interrupted
from kvseal.process.leftovers import RUN_VARIABLE
from kvseal.records import verification
from kvseal.records.history import HistoryWriter, read_history
from kvseal.records.places import RESULT, SUFFIX, Places


def beside(report: Path) -> Places:
    """Return the places for a report at `report`, once it is certain that they are free.

    Raises:
        OptionError: something is there already, or nothing can be written there.
    """
    places = Places(report, report.with_name(f"{report.stem}{SUFFIX}"))
    if places.folder == report:
        raise OptionError(
            "report and evidence folder would be one",
            option="--report",
            value=str(report),
            expected="a name that does not end in .evidence",
            remedy="for example report.json",
        )
    for path, what in ((report, "report"), (places.folder, "evidence folder")):
        if path.exists() or path.is_symlink():
            raise OptionError(
                f"{what} exists already; evidence is never written over",
                option="--report",
                value=str(path),
                expected="a path where nothing is",
                remedy="name another, or move this one away",
            )
    parent = report.parent
    if not parent.is_dir():
        raise OptionError(
            "the report's folder does not exist",
            option="--report",
            value=str(report),
            expected=f"a folder at {parent}",
            remedy=f"mkdir -p {parent}",
        )
    if not os.access(parent, os.W_OK | os.X_OK) or _read_only(parent):
        raise OptionError(
            "the report's folder can't be written to",
            option="--report",
            value=str(report),
            expected="a folder this user may write in",
            remedy="name another",
        )
    return places


def within(folder: Path) -> Places:
    """Return the places of a run folder, which holds its report as result.json."""
    return Places(folder / RESULT, folder)


def _read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


@dataclass(frozen=True)
class Evidence:
    """Evidence under way. `run_id` marks its processes and is part of every cache scope."""

    places: Places
    history: HistoryWriter
    run_id: str

    def refresh(self) -> dict[str, Any]:
        """Make the report anew from the history, and return it."""
        report = document(read_history(self.places.history, verification.TABLE))
        store.write_json(self.places.report, report)
        return report


@contextmanager
def recorded(places: Places, run_id: str) -> Iterator[Evidence]:
    """Keep evidence for a `with` block; an error or interruption in it becomes part of it.

    Raises:
        EvidenceError: the folder exists.
    """
    store.create_run_folder(places.folder)
    os.environ[RUN_VARIABLE] = run_id
    with store.LineFile(places.history) as lines:
        history = HistoryWriter(lines, verification.TABLE)
        try:
            yield Evidence(places, history, run_id)
        except Interrupted as interruption:
            history.append(verification.interrupted(signal=interruption.signal_name))
            raise
        except KvsealError as error:
            history.append(verification.error(where=type(error).__name__, message=str(error)))
            raise
        except Exception as error:
            # A defect of ours, or of a library: recorded, and still raised with its traceback.
            history.append(verification.error(where=type(error).__name__, message=repr(error)))
            raise
        history.append(verification.verification_finished())
