# SPDX-License-Identifier: Apache-2.0
"""A run folder that is filled as things happen and is whole at every moment.

`recorded` makes the folder, opens the history and writes into it whatever ends
the run early, so that an interrupted or broken run says so itself. What the
history amounts to is for the caller to have judged (kvseal.cli.compare).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvseal import store
from kvseal.errors import KvsealError
from kvseal.host.facts import HostFacts
from kvseal.process import Interrupted
from kvseal.process.leftovers import RUN_VARIABLE
from kvseal.records import builders
from kvseal.records.events import TABLE
from kvseal.records.fields import EventTable
from kvseal.records.history import HistoryWriter
from kvseal.spec.runspec import CommonSpec


@dataclass(frozen=True)
class Recording:
    """A run under way. `run_id` is the folder's name and marks the run's processes."""

    folder: Path
    history: HistoryWriter
    run_id: str

    @property
    def logs(self) -> Path:
        """Where engines write their logs."""
        return self.folder / "logs"


@contextmanager
def recorded(
    spec: CommonSpec, folder: Path, host: HostFacts, driver: str, table: EventTable = TABLE
) -> Iterator[Recording]:
    """Record what `driver` does in a `with` block as a run of `spec` in the new `folder`.

    `table` has the events of its history. An error or interruption is written
    to it and raised again.

    Raises:
        EvidenceError: the folder exists.
    """
    store.create_run_folder(folder)
    store.write_text(folder / "spec.json", spec.dumps())
    run_id = folder.name
    os.environ[RUN_VARIABLE] = run_id
    with store.LineFile(folder / "history.jsonl") as lines:
        history = HistoryWriter(lines, table)
        history.append(
            builders.run_started(driver=driver, spec_sha256=spec.sha256(), host=host.to_json())
        )
        try:
            yield Recording(folder, history, run_id)
        except Interrupted as interruption:
            history.append(builders.interrupted(signal=interruption.signal_name))
            raise
        except KvsealError as error:
            history.append(builders.error(where=type(error).__name__, message=str(error)))
            raise
        except Exception as error:
            # A defect of ours, or of a library: recorded, and still raised with its traceback.
            history.append(builders.error(where=type(error).__name__, message=repr(error)))
            raise
        history.append(builders.run_finished())
