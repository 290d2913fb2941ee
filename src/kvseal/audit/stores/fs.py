# SPDX-License-Identifier: Apache-2.0
"""Reader of a folder that the adapters fs and fs_native keep their entries in.

Lists folders and asks for sizes; opens a file only where its bytes are asked
for, and then for reading; follows no link. Entries lie in the folder itself;
what lies deeper was put there by `relative_tmp_dir`, or by somebody else.

Source: LMCache 0.5.4 and 0.5.6, l2_adapters/fs_l2_adapter.py
`_key_to_file_and_tmp_path`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kvseal.audit.classify import Found, Shape
from kvseal.errors import OptionError, StoreError


class FolderStore:
    """One folder of entries.

    Raises:
        OptionError: there is no such folder.
    """

    kind = "fs"
    file_names = True

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise OptionError(
                "there is no such folder",
                option="--fs",
                value=str(folder),
                expected="the base_path of an fs or fs_native adapter",
                remedy="name the folder that the adapter's configuration names",
            )
        self.name = str(folder)
        self._folder = folder

    def __iter__(self) -> Iterator[Found]:
        """Yield all files, in no order."""
        waiting = [str(self._folder)]
        top = True
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as items:
                    for item in items:
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(item.path)
                            continue
                        found = _found(item, top)
                        if found is not None:
                            yield found
            except FileNotFoundError:
                if top:
                    raise self._unreadable(folder, "it is gone") from None
            except OSError as error:
                raise self._unreadable(folder, error.strerror or str(error)) from None
            top = False

    def read(self, found: Found, offset: int, size: int) -> bytes:
        """Return bytes of an entry; none where it is gone."""
        path = self._folder / found.name
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.pread(handle, size, offset)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unreadable(str(path), error.strerror or str(error)) from None

    def _unreadable(self, folder: str, why: str) -> StoreError:
        return StoreError(
            f"a folder or file of the store can't be read: {why}",
            option="--fs",
            value=folder,
            expected="what this user may read",
            remedy="run as a user that may read it",
        )


def _found(item: os.DirEntry[str], top: bool) -> Found | None:
    try:
        state = item.stat(follow_symlinks=False)
    except FileNotFoundError:  # evicted, or renamed, meanwhile
        return None
    if not item.is_file(follow_symlinks=False):
        return Found(item.name, 0, Shape.NO_BYTES)
    return Found(item.name, state.st_size, Shape.ENTRY if top else Shape.BELOW)
