# SPDX-License-Identifier: Apache-2.0
"""Whether what a run spec asks for is there already, so `make` need do nothing.

A run counts as done when results/latest was made from this very spec (its
digest covers kvseal's source too), its files are all as they were written, and
its verdict is PASS; anything else is run again. A build alone counts as done
when the play left `build-stamp.json` with this spec's digest in the work
folder and the engine environment still stands. Reads files, changes none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from kvseal import canonical
from kvseal.errors import EvidenceError
from kvseal.spec.runspec import CommonSpec
from kvseal.verdict import Verdict

BUILD_STAMP = "build-stamp.json"
"""In the work folder: `{"spec_sha256": …}`, written by the last task of the build."""


def reason_to_work(spec: CommonSpec) -> str | None:
    """Return why there is something to do, in a few words; None when all is done."""
    try:
        return _run_reason(spec) if spec.run else _build_reason(spec)
    except EvidenceError as error:
        return error.message


def _build_reason(spec: CommonSpec) -> str | None:
    stamp = Path(spec.roots.work) / BUILD_STAMP
    if not stamp.is_file():
        return "not built yet"
    if _read(stamp).get("spec_sha256") != spec.sha256():
        return "built from another configuration or source"
    if not Path(spec.environment.path).is_dir():
        return "the engine environment is gone"
    return None


def _run_reason(spec: CommonSpec) -> str | None:
    latest = Path(spec.roots.results) / "latest"
    if not (latest / "result.json").is_file():
        return "no result yet"
    if canonical.digest(_read(latest / "spec.json")) != spec.sha256():
        return "the latest result is of another configuration or source"
    for name, entry in _read(latest / "files.json").items():
        if not isinstance(entry, dict) or _sha256(latest / name) != entry.get("sha256"):
            return f"{name} of the latest result is missing or changed"
    verdict = _read(latest / "result.json").get("verdict")
    if verdict != Verdict.PASS.value:
        return f"the latest verdict is {verdict}"
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        value = canonical.loads_strict(path.read_bytes())
    except OSError as error:
        raise EvidenceError(f"{path.name} can't be read: {error.strerror}") from None
    if not isinstance(value, dict):
        raise EvidenceError(f"{path.name} holds no JSON object")
    return value


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            return digest.hexdigest()
    except OSError:
        return None
