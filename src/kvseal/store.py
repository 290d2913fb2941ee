# SPDX-License-Identifier: Apache-2.0
"""Files of a run on disk: whole or absent, never over another's, never outside the folder.

What a reader finds here was completely written: files are made beside their
name and moved onto it, lines are on disk before the next one begins. Paths are
never followed through a symbolic link inside a run folder. Called by drivers
and the CLI; knows nothing of what the files mean.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kvseal.canonical import loads_strict
from kvseal.errors import EvidenceError, PrerequisiteError

MANIFEST = "files.json"
"""Lists every other file of a run folder with its SHA-256 and size."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, quota or file size limit met inside the block into a clear error.

    Raises:
        PrerequisiteError: naming `path` and what is free there.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise PrerequisiteError(
            f"{path} can't be written: {os.strerror(error.errno)}",
            option="path",
            value=str(path),
            expected="room on this file system",
            remedy=f"free some space ({_free(path)}) or choose another root, then run again",
        ) from None


def _free(path: Path) -> str:
    with contextlib.suppress(OSError):
        state = os.statvfs(path.parent)
        return f"{state.f_bavail * state.f_frsize} bytes free, {state.f_favail} inodes"
    return "free space unknown"


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that `path` is either what it was or all of `data`, also after a crash.

    Raises:
        PrerequisiteError: the disk is full.
        OSError: it can't be written for another reason.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with disk_errors(path):
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON for people and programs alike; refuses NaN and infinities."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise EvidenceError(f"{path.name} can't be written as JSON: {error}") from None
    write_text(path, text + "\n")


def _sync_folder(folder: Path) -> None:
    # Some file systems can't sync a folder; the rename is then as safe as they make it.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_run_folder(folder: Path) -> Path:
    """Make a run folder with its `logs/`, which nothing else can have been writing to.

    Raises:
        EvidenceError: it exists, or something on the way to it is not a folder.
        PrerequisiteError: no permission, or the disk is full.
    """
    with disk_errors(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            (folder / "logs").mkdir()
        except FileExistsError:
            raise EvidenceError(
                "run folder exists already; a run is never written over",
                option="--out",
                value=str(folder),
                expected="a folder that does not exist yet",
                remedy="name another, or move this one away",
            ) from None
        except NotADirectoryError:
            raise EvidenceError(
                "a part of the run folder's path is a file", option="--out", value=str(folder)
            ) from None
        except PermissionError:
            raise PrerequisiteError(
                "run folder can't be made",
                option="--out",
                value=str(folder),
                expected="a folder this user may write in",
            ) from None
    return folder


def point_link(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target` in one step; a former link is replaced.

    Raises:
        EvidenceError: `link` exists and is not a symbolic link.
    """
    if link.exists() and not link.is_symlink():
        raise EvidenceError(
            "a link would replace a real file or folder", value=str(link), remedy="move it away"
        )
    unfinished = link.with_name(f".{link.name}.{secrets.token_hex(4)}.part")
    with disk_errors(link):
        unfinished.symlink_to(target)
        unfinished.replace(link)


class LineFile:
    """An append-only file of lines, each on disk when `append` returns.

    A line that found no room is taken back, so that a later one can't be glued
    to half of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        with disk_errors(path):
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                raise EvidenceError(
                    "file exists already and is never appended to by a second writer",
                    value=str(path),
                    remedy="start a run in a new folder",
                ) from None
        self._good = 0

    def append(self, line: str) -> None:
        """Write one line, which may not hold a line end itself.

        Raises:
            PrerequisiteError: the disk is full; the file ends with the line before.
            EvidenceError: the line holds a line end, or the file is closed.
        """
        if "\n" in line:
            raise EvidenceError("a line of a line file holds a line end", value=line[:80])
        if self._file is None:
            raise EvidenceError("line file is closed", value=str(self.path))
        data = line.encode("utf-8") + b"\n"
        with disk_errors(self.path):
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                os.fsync(self._file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._good)
                    os.lseek(self._file, self._good, os.SEEK_SET)
                raise
        self._good += len(data)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class FilesReport:
    """How a run folder differs from its files.json; true when it does not."""

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not (self.missing or self.extra or self.changed)

    def lines(self) -> list[str]:
        """Return one line for each difference."""
        return [
            *(f"missing: {name}" for name in self.missing),
            *(f"not listed: {name}" for name in self.extra),
            *(f"changed: {name}" for name in self.changed),
        ]


def file_digest(path: Path) -> dict[str, Any]:
    """Return `{"sha256": …, "bytes": …}` of a regular file, not following a link.

    Raises:
        EvidenceError: it is not a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise EvidenceError(f"file can't be read: {error.strerror}", value=str(path)) from None
    with open(handle, "rb") as file:  # noqa: PTH123  (a descriptor)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise EvidenceError("not a regular file", value=str(path))
        digest, size = hashlib.sha256(), 0
        while part := file.read(1 << 20):
            digest.update(part)
            size += len(part)
    return {"sha256": digest.hexdigest(), "bytes": size}


def list_files(folder: Path) -> list[str]:
    """Return the relative paths of all files below `folder`, sorted, without files.json.

    Raises:
        EvidenceError: something in it is neither a folder nor a regular file.
    """
    found = []
    for root, folders, names in os.walk(folder, followlinks=False):
        for name in [*folders, *names]:
            path = Path(root) / name
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise EvidenceError(
                    "run folder holds something that is neither a file nor a folder",
                    value=str(path),
                    remedy="remove it: a link or device can't be part of the evidence",
                )
        found += [(Path(root) / name).relative_to(folder).as_posix() for name in names]
    return sorted(name for name in found if name != MANIFEST)


def write_manifest(folder: Path) -> None:
    """Write files.json over all that is in `folder` now."""
    write_json(folder / MANIFEST, {name: file_digest(folder / name) for name in list_files(folder)})


def verify_manifest(folder: Path) -> FilesReport:
    """Compare a run folder with its files.json.

    Raises:
        EvidenceError: files.json is missing, not of its form, or names a path outside.
    """
    try:
        manifest = loads_strict((folder / MANIFEST).read_bytes())
    except OSError as error:
        raise EvidenceError(
            f"run folder has no readable {MANIFEST}: {error.strerror}", value=str(folder)
        ) from None
    if not isinstance(manifest, Mapping):
        raise EvidenceError(f"{MANIFEST} is not an object", value=str(folder))
    for name in manifest:
        inside(folder, name)
    present = set(list_files(folder))
    common = sorted(present & set(manifest))
    return FilesReport(
        missing=tuple(sorted(set(manifest) - present)),
        extra=tuple(sorted(present - set(manifest))),
        changed=tuple(name for name in common if file_digest(folder / name) != manifest[name]),
    )


def inside(folder: Path, name: str) -> Path:
    """Return `folder`/`name`, refusing a name that could lead anywhere else.

    Raises:
        EvidenceError: it is absolute, empty, holds `..`, a NUL or an odd part, or
            goes through a symbolic link.
    """
    pure = PurePosixPath(name)
    bad = not name or "\0" in name or pure.is_absolute() or ".." in pure.parts
    if bad or pure.as_posix() != name or name == ".":
        raise EvidenceError(
            "path leads out of the run folder or is not in plain form",
            value=name,
            expected="a relative path with `/` between its parts",
        )
    path = folder
    for part in pure.parts:
        path = path / part
        if path.is_symlink():
            raise EvidenceError("path goes through a symbolic link", value=str(path))
    return path


def copy_in(source: Path, folder: Path, name: str) -> dict[str, Any]:
    """Copy one regular file into a run folder; return its digest and size.

    Raises:
        EvidenceError: `source` is a link or no file, `name` leads outside or exists.
        PrerequisiteError: the disk is full.
    """
    target = inside(folder, name)
    if target.exists():
        raise EvidenceError("file exists already in the run folder", value=str(target))
    before = file_digest(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, source.read_bytes())
    if file_digest(target) != before:
        raise EvidenceError("file changed while it was copied", value=str(source))
    return before
