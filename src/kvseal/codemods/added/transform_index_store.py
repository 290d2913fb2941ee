# SPDX-License-Identifier: Apache-2.0
"""Where the variant index keeps its entries, added by kvseal: in memory, or in a folder.

    <folder>/<SHA-256 of the cache salt>/<recipe digest>/<manifest digest>.json

A file is an entry's bytes and nothing else, and whole or not there at all.
Writers lock each other out, those of other processes too; readers need no lock.
Knows nothing of what the bytes are. Names of paths are digests that
`transform_index` has checked. The standard library is enough.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_ENTRY_BYTES = 4095
LOCK_SECONDS = 10.0
LOCK_FILE = ".lock"

_FILE = re.compile(r"([0-9a-f]{64})\.json")


class RefusedError(Exception):
    """A request that is not carried out; `status` is the HTTP status to answer with.

    500 means that what is stored is not what it must be.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class MemoryEntries:
    """Entries that end with this process."""

    def __init__(self) -> None:
        self._recipes: dict[tuple[str, str], dict[str, bytes]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out."""
        with self._lock:
            yield

    def names(self, salt: str, recipe: str) -> list[str]:
        """Return the manifest digests of a recipe, sorted."""
        return sorted(self._recipes.get((salt, recipe), ()))

    def read(self, salt: str, recipe: str, digest: str) -> bytes | None:
        """Return an entry, None where there is none."""
        return self._recipes.get((salt, recipe), {}).get(digest)

    def write(self, salt: str, recipe: str, digest: str, data: bytes) -> None:
        """Add or replace an entry; the lock is held."""
        self._recipes.setdefault((salt, recipe), {})[digest] = data

    def remove(self, salt: str, recipe: str, digest: str) -> bool:
        """Take an entry away; the lock is held. False where there was none."""
        entries = self._recipes.get((salt, recipe), {})
        found = entries.pop(digest, None) is not None
        if not entries:
            self._recipes.pop((salt, recipe), None)
        return found

    def count(self) -> int:
        """Return the number of all entries."""
        return sum(map(len, self._recipes.values()))


class FolderEntries:
    """Entries as files, whole or not there at all; several processes may share them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out, those of other processes too."""
        self._folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + LOCK_SECONDS
        with self._lock, (self._folder / LOCK_FILE).open("ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        text = (
                            f"the variant index was locked by another writer for {LOCK_SECONDS} s"
                        )
                        raise RefusedError(503, text) from None
                    time.sleep(0.01)
            yield

    def names(self, salt: str, recipe: str) -> list[str]:
        """Return the manifest digests of a recipe, sorted; refuse files that are no entries."""
        names = []
        with suppress(FileNotFoundError), os.scandir(self._folder / salt / recipe) as found:
            for item in found:
                if item.name.startswith("."):  # half written, or of the file system itself
                    continue
                match = _FILE.fullmatch(item.name)
                if match is None:
                    text = f"recipe {recipe}: {item.name!r} is no entry of a variant index"
                    raise RefusedError(500, text)
                names.append(match[1])
        return sorted(names)

    def read(self, salt: str, recipe: str, digest: str) -> bytes | None:
        """Return an entry, None where there is none; never through a link."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._file(salt, recipe, digest), flags)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RefusedError(500, f"recipe {recipe}: entry {digest} is no regular file")
            return file.read(MAX_ENTRY_BYTES + 1)

    def write(self, salt: str, recipe: str, digest: str, data: bytes) -> None:
        """Add or replace an entry; the lock is held. It is on disk when this returns."""
        folder = self._folder / salt / recipe
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*.tmp"):  # of a writer that died
            left.unlink(missing_ok=True)
        half = folder / f".{secrets.token_hex(8)}.tmp"
        try:
            with half.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._file(salt, recipe, digest))
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        for path in (folder, folder.parent, self._folder):
            _sync_folder(path)

    def remove(self, salt: str, recipe: str, digest: str) -> bool:
        """Take an entry away; the lock is held. False where there was none."""
        folder = self._folder / salt / recipe
        try:
            self._file(salt, recipe, digest).unlink()
        except FileNotFoundError:
            return False
        _sync_folder(folder)
        with suppress(OSError):  # not empty
            folder.rmdir()
            folder.parent.rmdir()
        return True

    def count(self) -> int:
        """Return the number of all entries."""
        return sum(1 for _ in self._folder.glob("*/*/*.json"))

    def _file(self, salt: str, recipe: str, digest: str) -> Path:
        return self._folder / salt / recipe / f"{digest}.json"


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
