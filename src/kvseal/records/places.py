# SPDX-License-Identifier: Apache-2.0
"""Where a verification's report and its evidence lie, from the path of either.

A report has its evidence in a folder beside it; a run folder holds both. Paths
only: nothing here looks at a disk but to see what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SUFFIX = ".evidence"
HISTORY = "history.jsonl"
RESULT = "result.json"


@dataclass(frozen=True)
class Places:
    """The report's path, and the folder for everything else."""

    report: Path
    folder: Path

    @classmethod
    def of(cls, path: Path) -> Places:
        """Return the places of a run folder, a report, or the evidence folder beside a report.

        The report of an evidence folder is taken to be called .json.
        """
        if path.is_dir():
            beside = path.suffix == SUFFIX and not (path / RESULT).exists()
            return cls(path.with_suffix(".json") if beside else path / RESULT, path)
        return cls(path, path.with_name(f"{path.stem}{SUFFIX}"))

    @property
    def history(self) -> Path:
        """The history file."""
        return self.folder / HISTORY

    @property
    def logs(self) -> Path:
        """Where engines write their logs."""
        return self.folder / "logs"
