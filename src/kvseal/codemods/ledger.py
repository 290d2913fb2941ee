# SPDX-License-Identifier: Apache-2.0
"""What kvseal keeps in an environment about its patches: `<env>/.kvseal/`.

`patches.json` is the record, `patches.diff` the same as a unified diff,
`blobs/<sha256>` hold every byte needed to go back, `journal.json` exists only
while files are being changed, and `lock` keeps two changers apart.

A file of the environment may be a hard link into an installer's cache, so it is
never written in place: a new file is renamed over it, which leaves the cache's
copy alone. The journal is on disk before the first file changes and goes after
the record is written; it lists what each file may hold meanwhile, so whoever
comes next can tell a half-made change from somebody else's edit. Only
`patchset` calls this module.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import IO, Any

from kvseal.canonical import loads_strict, sha256_hex
from kvseal.codemods.environment import Environment
from kvseal.errors import EvidenceError, PatchError

FOLDER = ".kvseal"
RECORD_SCHEMA = "kvseal.patches.v1"
JOURNAL_SCHEMA = "kvseal.patch-journal.v1"
TEMPORARY_PREFIX = ".kvseal-"
LOCK_TIMEOUT_SECONDS = 30.0


class Ledger:
    """The `.kvseal` folder of one environment."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.folder = environment.root / FOLDER
        self.record = self.folder / "patches.json"
        self.diff = self.folder / "patches.diff"
        self.journal = self.folder / "journal.json"

    @contextlib.contextmanager
    def locked(self, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Hold the environment's patch lock.

        Raises:
            PatchError: when another process holds it for `timeout_seconds`.
        """
        self.folder.mkdir(exist_ok=True)
        path = self.folder / "lock"
        with path.open("a+", encoding="utf-8") as lock:
            self._take(lock, path, time.monotonic() + timeout_seconds)
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def _take(self, lock: IO[str], path: Path, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                lock.seek(0)
                raise PatchError(
                    "another kvseal is patching this environment",
                    option="lock",
                    value=str(path),
                    expected=f"process {lock.read().strip() or 'unknown'} to end",
                    remedy="wait for it, then run the command again",
                ) from None
            else:
                return

    def load(self, path: Path, schema: str) -> dict[str, Any] | None:
        """Return the JSON object in `path`, or None where there is no such file."""
        if not path.is_file():
            return None
        try:
            value = loads_strict(path.read_bytes())
        except EvidenceError as error:
            raise _damaged(path, str(error)) from None
        if not isinstance(value, dict) or value.get("schema") != schema:
            raise _damaged(path, f"a record of schema {schema}")
        return value

    def put_blob(self, data: bytes) -> str:
        """Keep `data` under its SHA-256 and return that."""
        digest = sha256_hex(data)
        path = self.folder / "blobs" / digest
        if not path.is_file() or sha256_hex(path.read_bytes()) != digest:
            path.parent.mkdir(exist_ok=True)
            replace_file(path, data)
        return digest

    def blob(self, digest: str) -> bytes:
        """Return kept bytes.

        Raises:
            PatchError: when they are missing or no longer have that digest.
        """
        path = self.folder / "blobs" / digest
        data = path.read_bytes() if path.is_file() else b""
        if sha256_hex(data) != digest:
            raise PatchError(
                "the kept original of a patched file is missing or damaged",
                option="file",
                value=str(path),
                expected=f"SHA-256 {digest}",
                remedy="reinstall the package, then run the command again",
            )
        return data

    def keep_only(self, digests: set[str]) -> None:
        """Drop the blobs that nothing refers to any more."""
        for path in (self.folder / "blobs").glob("*"):
            if path.name not in digests:
                path.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, whole or not at all."""
    replace_file(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put a new file with `data` at `path`; an old one there keeps its bytes elsewhere linked."""
    if path.exists():
        mode = path.stat().st_mode & 0o7777
    handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(temporary, path)  # noqa: PTH105  (one name to make fail in a test)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_file(path: Path, stop: Path) -> None:
    """Remove `path` and the folders this leaves empty, up to but not including `stop`."""
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == stop:
            break
        try:
            folder.rmdir()
        except OSError:  # not empty: somebody else's files are in it
            break


def drop_compiled(path: Path) -> None:
    """Remove compiled copies of a Python source, which Python might take for current.

    Python compares whole seconds and the size; both can be equal after two
    quick changes.
    """
    if path.suffix != ".py":
        return
    # The second is the same folder, unless PYTHONPYCACHEPREFIX puts them elsewhere.
    for folder in {path.parent / "__pycache__", Path(cache_from_source(str(path))).parent}:
        for compiled in folder.glob(f"{path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _damaged(path: Path, expected: str) -> PatchError:
    return PatchError(
        "kvseal's own patch record is damaged",
        option="file",
        value=str(path),
        expected=expected,
        remedy="reinstall the patched packages and remove this file",
    )
