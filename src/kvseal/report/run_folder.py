# SPDX-License-Identifier: Apache-2.0
"""Read a run folder back: digests first, then spec, history and what stands beside them.

Called by the verbs check and report. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import loads_strict, sha256_hex
from kvseal.checkers.compare import Judgement
from kvseal.checkers.stored import judge_again
from kvseal.checkers.unsafe_hit import UnsafeHit, judge_unsafe_hit
from kvseal.errors import EvidenceError, OptionError
from kvseal.records.history import History, read_history
from kvseal.spec.runspec import RunSpec
from kvseal.store import FilesReport, verify_manifest

REPORTS = ("report.html", "report.json", "report.md")
"""Written into a run folder after its files.json, so not listed there."""


@dataclass(frozen=True)
class RunFolder:
    """A run as its files tell it, judged again.

    `result` is made anew from spec and history; result.json itself only had to
    be the same (else `judgement` holds `result.differs`). `unlisted` are files
    that files.json does not know and no verdict looks at.
    """

    path: Path
    spec: RunSpec
    history: History
    judgement: Judgement
    result: dict[str, Any]
    patches: dict[str, Any]
    diff: str
    unlisted: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's ID: the name of its folder."""
        return self.path.resolve().name


def read_folder(path: Path) -> RunFolder | UnsafeHit:
    """Read and judge the run folder at `path`, whichever verb wrote it.

    Raises:
        OptionError: there is no folder at `path`.
        EvidenceError: a listed file is missing or changed, or a record can't be read; for
            `kvseal unsafe-hit` also where result.json is not what the history gives.
    """
    files = verified(path)
    history = read_history(path / "history.jsonl")
    started = history.named("run_started")
    if started and started[0]["driver"] == "unsafe-hit":
        return _unsafe_hit(path, files, history)
    return _comparison(path.resolve(), files, history)


def read_run(path: Path) -> RunFolder:
    """Read and judge the run folder of `kvseal compare` at `path`.

    Raises: as `read_folder`; OptionError also where another verb wrote the folder.
    """
    found = read_folder(path)
    if isinstance(found, UnsafeHit):
        raise OptionError(
            "the run is no comparison, and only a comparison has reports",
            option="RUN",
            value="unsafe-hit",
            remedy="kvseal check prints it",
        )
    return found


def _unsafe_hit(path: Path, files: FilesReport, history: History) -> UnsafeHit:
    found = judge_unsafe_hit(history)
    if files.extra or read_object(path / "result.json") != found.to_json():
        raise EvidenceError(
            "result.json is not what its own history gives, or files were added",
            value=str(path),
            remedy="run `kvseal unsafe-hit` again",
        )
    return found


def _comparison(path: Path, files: FilesReport, history: History) -> RunFolder:
    spec = RunSpec.load(path / "spec.json")
    judgement, anew = judge_again(spec, history, read_object(path / "result.json"))
    patches, diff = read_patches(path)
    return RunFolder(
        path=path,
        spec=spec,
        history=history,
        judgement=judgement,
        result=anew | {key: judgement.to_json()[key] for key in ("verdict", "reasons")},
        patches=patches,
        diff=diff,
        unlisted=tuple(name for name in files.extra if name not in REPORTS),
    )


def read_patches(path: Path) -> tuple[dict[str, Any], str]:
    """Return patches.json and patches.diff of a run folder, empty where there are none.

    Raises:
        EvidenceError: the one does not speak of the other.
    """
    patches, diff = read_object(path / "patches.json") or {}, _text(path / "patches.diff")
    if (diff or patches) and sha256_hex(diff.encode()) != patches.get("diff_sha256"):
        raise EvidenceError(
            "patches.diff is not the one patches.json speaks of",
            value=sha256_hex(diff.encode()),
            expected=str(patches.get("diff_sha256")),
        )
    return patches, diff


def verified(path: Path) -> FilesReport:
    """Hold the folder to its files.json; what is there beyond it is in the report's `extra`.

    Raises:
        OptionError: there is no folder at `path`.
        EvidenceError: a listed file is missing or changed.
    """
    if not path.is_dir():
        raise OptionError(
            "no such run folder",
            option="RUN",
            value=str(path),
            expected="a folder that a kvseal run wrote",
            remedy="look in the results folder, under runs/; `latest` is the newest",
        )
    files = verify_manifest(path)
    if files.missing or files.changed:
        raise EvidenceError(
            "files of the run are not those that the run wrote",
            value="; ".join(line for line in files.lines() if not line.startswith("not listed")),
            expected="every file with the digest in files.json",
            remedy="bring the run folder over again from the node",
        )
    return files


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, None where there is no file.

    Raises:
        EvidenceError: the file can't be read or holds something else.
    """
    text = _text(path)
    if not text and not path.exists():
        return None
    value = loads_strict(text)
    if not isinstance(value, Mapping):
        raise EvidenceError("not a JSON object", value=str(path))
    return dict(value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"file can't be read: {error}", value=str(path)) from None
