# SPDX-License-Identifier: Apache-2.0
"""Read the run folder of a matrix back and judge it again, from its files alone.

Called by the verbs check and report. Writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import loads_strict
from kvseal.checkers.matrix import judge_again, verdict_of
from kvseal.errors import EvidenceError
from kvseal.records.history import read_history
from kvseal.records.matrix import DRIVER, TABLE
from kvseal.report.run_folder import REPORTS, read_object, read_patches, verified
from kvseal.spec.runspec import MatrixSpec
from kvseal.verdict import Verdict

HISTORY, RESULT, SPEC = "history.jsonl", "result.json", "spec.json"


@dataclass(frozen=True)
class MatrixRun:
    """A matrix run as its files tell it, judged again.

    `result` is made anew from spec and history; result.json itself only had to
    be the same (else its reasons hold `result.differs`). `unlisted` are files
    that files.json does not know and no verdict looks at.
    """

    path: Path
    result: dict[str, Any]
    patches: dict[str, Any]
    diff: str
    unlisted: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's ID: the name of its folder."""
        return self.path.resolve().name

    @property
    def verdict(self) -> Verdict:
        """The verdict of the judgement made anew."""
        return verdict_of(self.result)


def is_matrix(path: Path) -> bool:
    """True when `path` is a folder whose spec, or else whose history, is of a matrix."""
    try:
        spec = loads_strict((path / SPEC).read_bytes())
        return isinstance(spec, dict) and spec.get("workflow") == MatrixSpec.WORKFLOW
    except (OSError, EvidenceError):
        pass
    try:
        with (path / HISTORY).open("rb") as lines:
            first = loads_strict(lines.readline())
        return isinstance(first, dict) and first.get("driver") == DRIVER
    except (OSError, EvidenceError):
        return False


def read_matrix(path: Path) -> MatrixRun:
    """Read and judge the run folder of `kvseal matrix` at `path`.

    Raises:
        OptionError: there is no folder at `path`, or no run spec of a matrix in it.
        EvidenceError: a listed file is missing or changed, or a record can't be read.
    """
    files = verified(path)
    spec = MatrixSpec.load(path / SPEC)
    history = read_history(path / HISTORY, TABLE)
    result = judge_again(spec, history, read_object(path / RESULT))
    patches, diff = read_patches(path)
    return MatrixRun(
        path=path,
        result=result,
        patches=patches,
        diff=diff,
        unlisted=tuple(name for name in files.extra if name not in REPORTS),
    )
