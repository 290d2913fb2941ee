# SPDX-License-Identifier: Apache-2.0
"""Two plugins for LMCache's `plugin` and `native_plugin` adapters, for tests: files in a folder.

`FilesAdapter` gets LMCache's ObjectKey and makes its own text of it: the JSON of
LMCache's EncodedObjectKey. `FilesConnector` gets the text that LMCache makes for
native connectors. Both do their work at once, in the caller's thread. A file is
named by the digest of its key's text and begins with that text, which is
compared at each read. They know nothing of variants. Loaded by LMCache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface


class Files:
    """Payloads by the text of their key."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, text: str) -> Path:
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.kv"

    def write(self, text: str, data: memoryview) -> None:
        """Write an entry whole, or not at all."""
        unfinished = self._path(text).with_suffix(".part")
        unfinished.write_bytes(text.encode() + b"\n" + data)
        unfinished.replace(self._path(text))

    def read(self, text: str) -> bytes | None:
        """Return an entry's payload, None where there is none of exactly this key."""
        try:
            head, _, data = self._path(text).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        return data if head == text.encode() else None

    def remove(self, text: str) -> bool:
        """Remove an entry; return whether it was there."""
        there = self.read(text) is not None
        self._path(text).unlink(missing_ok=True)
        return there


class FilesAdapter(L2AdapterInterface):
    """LMCache's adapter interface over `Files`."""

    def __init__(self, params: dict[str, Any], l1_memory_desc: object = None) -> None:
        super().__init__()
        self._files = Files(params["folder"])
        self._events = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(3)]
        self._stored: dict[int, L2StoreResult] = {}
        self._answers: dict[int, Bitmap] = {}
        self._tasks = 0

    @staticmethod
    def text(key: Any) -> str:
        """Return the text that stands for a key here."""
        return json.dumps(dataclasses.asdict(key.to_encoded_object_key()), sort_keys=True)

    def get_store_event_fd(self) -> int:
        return self._events[0]

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._events[1]

    def get_load_event_fd(self) -> int:
        return self._events[2]

    def _done(self, event: int) -> int:
        self._tasks += 1
        os.eventfd_write(self._events[event], 1)
        return self._tasks

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        sizes = [len(memoryview(item.byte_array)) for item in objects]
        for key, item in zip(keys, objects, strict=True):
            self._files.write(self.text(key), memoryview(item.byte_array))
        self._stored[self._tasks + 1] = L2StoreResult(True, sum(sizes))
        self._notify_keys_stored(keys, sizes)
        return self._done(0)

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        done, self._stored = self._stored, {}
        return done

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: object) -> int:
        found = Bitmap(len(keys))
        for index, key in enumerate(keys):
            if self._files.read(self.text(key)) is not None:
                found.set(index)
        self._answers[self._tasks + 1] = found
        return self._done(1)

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        return self._answers.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Nothing is locked: an entry that goes away in between is a miss."""

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        loaded = Bitmap(len(keys))
        for index, (key, item) in enumerate(zip(keys, objects, strict=True)):
            data = self._files.read(self.text(key))
            target = memoryview(item.byte_array).cast("B")
            if data is not None and len(data) == len(target):
                target[:] = data
                loaded.set(index)
        self._answers[self._tasks + 1] = loaded
        return self._done(2)

    def query_load_result(self, task_id: int) -> Bitmap | None:
        return self._answers.pop(task_id, None)

    def delete(self, keys: list[Any]) -> None:
        for key in keys:
            data = self._files.read(self.text(key))
            if data is not None:
                self._files.remove(self.text(key))
                self._notify_keys_deleted([key], [len(data)])

    def close(self) -> None:
        for event in self._events:
            os.close(event)


class FilesConnector:
    """What LMCache expects of a native connector, over `Files`."""

    def __init__(self, folder: str) -> None:
        self._files = Files(folder)
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self._completions: list[tuple[int, bool, str, list[bool]]] = []
        self._futures = 0

    def event_fd(self) -> int:
        return self._event

    def _done(self, answers: list[bool]) -> int:
        self._futures += 1
        self._completions.append((self._futures, True, "", answers))
        os.eventfd_write(self._event, 1)
        return self._futures

    def submit_batch_set(self, keys: list[str], buffers: list[memoryview]) -> int:
        for key, data in zip(keys, buffers, strict=True):
            self._files.write(key, data)
        return self._done([True] * len(keys))

    def submit_batch_exists(self, keys: list[str]) -> int:
        return self._done([self._files.read(key) is not None for key in keys])

    def submit_batch_get(self, keys: list[str], buffers: list[memoryview]) -> int:
        answers = []
        for key, target in zip(keys, buffers, strict=True):
            data = self._files.read(key)
            fits = data is not None and len(data) == len(target)
            if data is not None and fits:
                target.cast("B")[:] = data
            answers.append(fits)
        return self._done(answers)

    def submit_batch_delete(self, keys: list[str]) -> int:
        return self._done([self._files.remove(key) for key in keys])

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool]]]:
        os.eventfd_read(self._event)
        done, self._completions = self._completions, []
        return done

    def close(self) -> None:
        os.close(self._event)
