# SPDX-License-Identifier: Apache-2.0
"""One of LMCache's own L2 adapters, driven in this process, without an LMCache server.

    with opened_adapter(running.adapters[0]) as adapter:
        adapter.store({key: payload})
        adapter.found([key, other])      # [True, False]
        adapter.load([key, other])       # [payload, None]

It makes the adapter as LMCache's server does, from the same JSON and with
objects of a real L1 pool, and waits on the adapter's own event descriptors. It
holds no copy of anything and interprets nothing. It runs on stock LMCache and on
an edited one alike. Called by the contract suite, fault tests and
bench/backends.py, which run in LMCache's Python; LMCache is imported when used.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/storage_manager.py: StorageManager`
(how adapters are made), `v1/distributed/l2_adapters/base.py: L2AdapterInterface`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from kvseal.errors import StoreError

T = TypeVar("T")

POOL_BYTES = 128 << 20


class Adapter:
    """An adapter and the L1 pool its objects live in. All payloads of one adapter have one size."""

    def __init__(self, adapter: Any, pool: Any, payload_bytes: int, timeout_seconds: float) -> None:
        import torch
        from lmcache.v1.distributed.api import MemoryLayoutDesc

        self.lmcache = adapter
        self._pool = pool
        self._layout = MemoryLayoutDesc([torch.Size([payload_bytes])], [torch.uint8])
        self._payload_bytes = payload_bytes
        self._timeout_seconds = timeout_seconds

    def store(self, entries: Mapping[Any, bytes]) -> int:
        """Store a payload under each key; return the bytes the adapter says it wrote.

        Raises:
            StoreError: the adapter reports a failure, or does not finish in time.
        """
        keys = list(entries)
        with self._objects(len(keys)) as objects:
            for item, payload in zip(objects, entries.values(), strict=True):
                self._bytes_of(item)[:] = payload
            task = self.lmcache.submit_store_task(keys, objects)
            done: dict[int, Any] = {}

            def stored() -> Any:
                done.update(self.lmcache.pop_completed_store_tasks())
                return done.get(task)

            result = self._wait(self.lmcache.get_store_event_fd(), stored, "store")
        if not result.is_successful():
            raise StoreError("the L2 adapter reports a failed store", value=self.name)
        return int(result.bytes_transferred())

    def found(self, keys: Sequence[Any]) -> list[bool]:
        """Look `keys` up; return for each whether it is there. Locks are given back at once."""
        keys = list(keys)
        answers = self._lookup(keys)
        self._unlock(keys, answers)
        return answers

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Look `keys` up and load what is there, as LMCache's prefetch does.

        Returns each payload, None where it was not found or not loaded.
        """
        keys = list(keys)
        answers = self._lookup(keys)
        there = [key for key, found in zip(keys, answers, strict=True) if found]
        loaded = iter(self.load_blindly(there) if there else [])
        self._unlock(keys, answers)
        return [next(loaded) if found else None for found in answers]

    def load_blindly(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Load `keys` without a lookup before; return each payload, None where it was not loaded.

        Raises:
            StoreError: the adapter does not come back (`Backend.loads_absent` is False).
        """
        keys = list(keys)
        with self._objects(len(keys)) as objects:
            for item in objects:
                self._bytes_of(item)[:] = b"\xa5" * self._payload_bytes
            task = self.lmcache.submit_load_task(keys, objects)
            bits = self._wait(
                self.lmcache.get_load_event_fd(),
                lambda: self.lmcache.query_load_result(task),
                "load",
            )
            return [
                bytes(self._bytes_of(item)) if bits.test(index) else None
                for index, item in enumerate(objects)
            ]

    def _lookup(self, keys: list[Any]) -> list[bool]:
        layouts = {key.object_group_id: self._layout for key in keys}
        task = self.lmcache.submit_lookup_and_lock_task(keys, layouts)
        bits = self._wait(
            self.lmcache.get_lookup_and_lock_event_fd(),
            lambda: self.lmcache.query_lookup_and_lock_result(task),
            "lookup",
        )
        return [bool(bits.test(index)) for index in range(len(keys))]

    def _unlock(self, keys: list[Any], answers: list[bool]) -> None:
        locked = [key for key, found in zip(keys, answers, strict=True) if found]
        if locked:
            self.lmcache.submit_unlock(locked)

    def delete(self, keys: Sequence[Any]) -> None:
        """Ask the adapter to remove `keys`; an adapter that can't does nothing.

        What is locked is not removed, and adapters unlock in their own time: a lookup
        of a key that nobody has is answered after what was asked before it.
        """
        nobodys = dataclasses.replace(keys[0], chunk_hash=os.urandom(32))
        self._lookup([nobodys])
        self.lmcache.delete(list(keys))

    @property
    def name(self) -> str:
        """The adapter's class, for messages."""
        return type(self.lmcache).__name__

    @contextmanager
    def _objects(self, count: int) -> Iterator[list[Any]]:
        from lmcache.v1.distributed.error import L1Error

        error, objects = self._pool.allocate(self._layout, count)
        if error != L1Error.SUCCESS:
            raise StoreError("no room in the L1 pool", value=count, expected="fewer objects")
        try:
            yield objects
        finally:
            self._pool.free(objects)

    @staticmethod
    def _bytes_of(item: Any) -> memoryview:
        return memoryview(item.byte_array).cast("B")

    def _wait(self, descriptor: int, result: Callable[[], T | None], act: str) -> T:
        """Wait until `result` answers; a task that was done before the wait is seen too."""
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            answer = result()
            if answer is not None:
                return answer
            if time.monotonic() > deadline:
                raise StoreError(
                    f"the L2 adapter did not finish a {act} in {self._timeout_seconds:g} s",
                    value=self.name,
                )
            if poller.poll(50):
                os.read(descriptor, 8)


@contextmanager
def opened_adapter(
    adapter: Mapping[str, Any], *, payload_bytes: int = 4096, timeout_seconds: float = 30
) -> Iterator[Adapter]:
    """Make LMCache's adapter from its JSON for the length of a `with` block, as its server does.

    Raises:
        Whatever LMCache raises for a configuration that it refuses.
    """
    from lmcache.v1.distributed.config import L1MemoryManagerConfig
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
    from lmcache.v1.distributed.memory_manager import L1MemoryManager

    (config,) = parse_args_to_l2_adapters_config(
        Namespace(l2_adapter=[json.dumps(adapter)])
    ).adapters
    pool = L1MemoryManager(
        L1MemoryManagerConfig(size_in_bytes=POOL_BYTES, use_lazy=False, shm_name="")
    )
    try:
        made = create_l2_adapter(config, pool.get_l1_memory_desc())
        try:
            yield Adapter(made, pool, payload_bytes, timeout_seconds)
        finally:
            made.close()
    finally:
        pool.close()
