# SPDX-License-Identifier: Apache-2.0
"""Loads of sealed objects, added by kvseal: an L2 adapter's load tasks, in parts.

As with stores, ordinary objects of a task are loaded by the adapter where they are
wanted, and those of variants into longer buffers. What is whole is copied to where
it was wanted, by threads that begin with the first variant; the rest is reported
like any other load that failed. A load that finds no memory for its buffers fails.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1 import transform_seal
from lmcache.v1.transform_seal_stores import Workshop, at, split

logger = init_logger(__name__)


@dataclass
class _Part:
    """A load by the adapter; `buffers` take objects of variants, `unchecked` of them to check."""

    number: int
    places: list[int]
    buffers: list[Any]
    unchecked: int = 0


@dataclass
class _Load:
    """A load with variants: its parts under way, and the bitmap of what is there."""

    keys: list[Any]
    targets: list[Any]
    loaded: Any
    parts: list[_Part] = field(default_factory=list)


class SealedLoads:
    """Loads of one adapter."""

    def __init__(self, adapter: Any, shop: Workshop) -> None:
        self._submit, self._query = adapter.submit_load_task, adapter.query_load_result
        self._fd = adapter.get_load_event_fd()
        self._shop = shop
        self._lock = threading.Lock()
        self._tasks: dict[int, _Load] = {}

    def submit(self, keys: list[Any], objects: list[Any]) -> int:
        """Load ordinary objects in place, and those of variants into longer buffers."""
        variants, ordinary = split(keys)
        if not variants:
            return self._submit(keys, objects)
        task = _Load(list(keys), list(objects), Bitmap(len(keys)))
        for places in filter(None, (variants, ordinary)):
            buffers: list[Any] = []
            part_keys, targets = at(places, keys, objects)
            try:
                if places is variants:
                    targets = buffers = self._shop.allocate(targets)
                task.parts.append(_Part(self._submit(part_keys, targets), places, buffers))
            except Exception:
                logger.exception("Could not load %d objects", len(places))
                self._shop.free(buffers)
        number = next(self._shop.numbers)
        with self._lock:
            self._tasks[number] = task
        if not task.parts:
            os.eventfd_write(self._fd, 1)
        return number

    def query(self, number: int) -> Any:
        """Return which objects are there and whole, None as long as that isn't known."""
        task = self._tasks.get(number)
        if task is None:
            return self._query(number)
        with self._lock:
            for part in [part for part in task.parts if not part.unchecked]:
                found = self._query(part.number)
                if found is None:
                    continue
                indices = found.get_indices_list()
                if part.buffers and indices:
                    part.unchecked = len(indices)
                    for index in indices:
                        self._shop.pool.submit(self._check, task, part, index)
                    continue
                for index in indices:
                    task.loaded.set(part.places[index])
                self._end_part(task, part)
            return None if task.parts else self._tasks.pop(number).loaded

    def free(self) -> None:
        """Give back the buffers of what was not completed; the adapter is closed."""
        for task in self._tasks.values():
            for part in task.parts:
                self._shop.free(part.buffers)
        self._tasks.clear()

    def _check(self, task: _Load, part: _Part, index: int) -> None:
        """Check one object and put it where it was wanted; the last one of a part signals."""
        place = part.places[index]
        key, whole = task.keys[place], False
        try:
            whole = transform_seal.read_sealed(key, part.buffers[index], task.targets[place])
        except Exception:
            logger.exception("Could not check the seal of %s", key)
        if not whole:
            logger.error("Refused what L2 holds of %s: it is not what was stored there", key)
        with self._lock:
            self._shop.counts["verified" if whole else "refused"] += 1
            if whole:
                task.loaded.set(place)
            part.unchecked -= 1
            if not part.unchecked:
                self._end_part(task, part)
                os.eventfd_write(self._fd, 1)

    def _end_part(self, task: _Load, part: _Part) -> None:
        task.parts.remove(part)
        self._shop.free(part.buffers)
