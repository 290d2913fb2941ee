# SPDX-License-Identifier: Apache-2.0
"""Stores of sealed objects, added by kvseal: an L2 adapter's store tasks, in parts.

A store with variants becomes one of the adapter for its ordinary objects, in the
buffers they came with, and one for the sealed ones, in buffers a page longer. They
are L1 memory, where adapters that register memory look for it; a store that finds
none fails. Such a task has a negative number, and ends when its parts have ended:
the adapter's own event descriptor says so. Threads begin with the first variant.
Ordinary tasks are the adapter's, number and all. `transform_sealed_adapter`
puts this in place; what is shared with loads stands here too.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from lmcache.logging import init_logger
from lmcache.v1 import transform_identity, transform_seal
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.distributed.error import L1Error
from lmcache.v1.distributed.internal_api import L2StoreResult

logger = init_logger(__name__)

MAXIMUM_THREADS = 8
FAILED = L2StoreResult(False, 0)


class Workshop:
    """What the stores and loads of one adapter share: threads, memory, numbers, counts."""

    def __init__(self, memory_manager: Any) -> None:
        self._memory = memory_manager
        threads = min(os.cpu_count() or 1, MAXIMUM_THREADS)
        self.pool = ThreadPoolExecutor(threads, "transform-seal")
        self.numbers = itertools.count(-1, -1)
        self.counts = {"sealed": 0, "verified": 0, "refused": 0}

    def allocate(self, objects: Sequence[Any]) -> list[Any]:
        """Return a buffer for each of `objects` and its seal.

        Raises:
            MemoryError: when there is not enough L1 memory; nothing is kept then.
        """
        buffers: list[Any] = []
        for size, alike in itertools.groupby(objects, transform_seal.payload_bytes):
            shape = torch.Size([size + transform_seal.SEAL_BYTES])
            layout = MemoryLayoutDesc(shapes=[shape], dtypes=[torch.uint8])
            error, made = self._memory.allocate(layout, len(list(alike)))
            buffers += made
            if error != L1Error.SUCCESS:
                self.free(buffers)
                raise MemoryError(f"no L1 memory for {len(objects)} sealed objects: {error}")
        return buffers

    def free(self, buffers: list[Any]) -> None:
        """Give buffers back."""
        if buffers:
            self._memory.free(buffers)


def split(keys: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the places of variants and of ordinary keys in `keys`."""
    marked = [transform_identity.RESERVED in key.model_name for key in keys]
    variants = [place for place, is_variant in enumerate(marked) if is_variant]
    return variants, [place for place, is_variant in enumerate(marked) if not is_variant]


def at(places: list[int], *lists: Sequence[Any]) -> list[list[Any]]:
    return [[items[place] for place in places] for items in lists]


@dataclass
class _Store:
    """A store with variants: what is still to do, what came of the rest, buffers to free."""

    keys: list[Any]
    unsealed: int
    parts: int
    successful: bool = True
    bytes: int = 0
    buffers: list[Any] = field(default_factory=list)


class SealedStores:
    """Stores of one adapter."""

    def __init__(self, adapter: Any, shop: Workshop) -> None:
        self._submit, self._pop = adapter.submit_store_task, adapter.pop_completed_store_tasks
        self._fd = adapter.get_store_event_fd()
        self._shop = shop
        self._lock = threading.Lock()
        self._tasks: dict[int, _Store] = {}
        self._task_of_part: dict[int, int] = {}
        self._completed: dict[int, Any] = {}

    def submit(self, keys: list[Any], objects: list[Any]) -> int:
        """Hand ordinary objects on, and those of variants once they are sealed."""
        variants, ordinary = split(keys)
        if not variants:
            return self._submit(keys, objects)
        number = next(self._shop.numbers)
        sealed_keys, sources = at(variants, keys, objects)
        task = _Store(sealed_keys, len(variants), 2 if ordinary else 1)
        with self._lock:
            if ordinary:
                self._task_of_part[self._submit(*at(ordinary, keys, objects))] = number
            self._tasks[number] = task
            try:
                task.buffers = self._shop.allocate(sources)
            except MemoryError as error:
                logger.error("Could not store %d objects of variants: %s", len(variants), error)
                self._fail_part(number)
                return number
        for index, source in enumerate(sources):
            self._shop.pool.submit(self._seal, number, task, index, source)
        return number

    def _seal(self, number: int, task: _Store, index: int, source: Any) -> None:
        """Seal one object; with the last one of a task they all go to the adapter."""
        sealed = False
        try:
            transform_seal.write_sealed(task.keys[index], source, task.buffers[index])
            sealed = True
        except Exception:
            logger.exception("Could not seal %s", task.keys[index])
        with self._lock:
            task.unsealed -= 1
            task.successful &= sealed
            if task.unsealed:
                return
            if not task.successful:
                self._fail_part(number)
                return
            try:
                part = self._submit(task.keys, list(task.buffers))
            except Exception:
                logger.exception("Could not store %d objects of variants", len(task.keys))
                self._fail_part(number)
            else:
                self._task_of_part[part] = number
                self._shop.counts["sealed"] += len(task.keys)

    def pop_completed(self) -> dict[int, Any]:
        """Return what is stored, by the numbers that the controller knows."""
        with self._lock:
            completed = dict(self._pop())
            for part in [number for number in completed if number in self._task_of_part]:
                self._end_part(self._task_of_part.pop(part), completed.pop(part))
            completed.update(self._completed)
            self._completed = {}
        return completed

    def free(self) -> None:
        """Give back the buffers of what was not completed; the adapter is closed."""
        for task in self._tasks.values():
            self._shop.free(task.buffers)
        self._tasks.clear()

    def _fail_part(self, number: int) -> None:
        self._end_part(number, FAILED)
        os.eventfd_write(self._fd, 1)

    def _end_part(self, number: int, result: Any) -> None:
        task = self._tasks[number]
        task.parts -= 1
        task.successful &= result.is_successful()
        task.bytes += result.bytes_transferred()
        if not task.parts:
            self._shop.free(self._tasks.pop(number).buffers)
            self._completed[number] = L2StoreResult(task.successful, task.bytes)
