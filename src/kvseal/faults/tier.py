# SPDX-License-Identifier: Apache-2.0
"""LMCache's storage manager with one L2 adapter in this process: what a server does without one.

    with opened_tier(adapter, payload_bytes=65536) as tier:
        tier.store({key: payload})       # [True]
        tier.forget()
        tier.load([key, other])          # [payload, None]

A store goes to L1 and from there to L2 by LMCache's own controller; `forget`
empties L1; a load is a lookup and prefetch from L2 as for a request, so that
what follows a miss is a miss too. Keeps no copy of anything, judges nothing.
Fault tests and bench/payload_seal.py call it, in LMCache's Python; LMCache is
imported when used.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/storage_manager.py: StorageManager`
(0.5.6 has another form of prefetch request and result).
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kvseal.errors import StoreError

POLL_SECONDS = 0.002


class Tier:
    """A storage manager whose payloads all have one size."""

    def __init__(self, manager: Any, payload_bytes: int, timeout_seconds: float) -> None:
        import torch
        from lmcache.v1.distributed.api import MemoryLayoutDesc

        self.manager = manager
        ((_, self.adapter),) = manager.l2_adapters()
        self._layout = MemoryLayoutDesc([torch.Size([payload_bytes])], [torch.uint8])
        self._timeout_seconds = timeout_seconds
        self._results: list[bool] = []
        pop = self.adapter.pop_completed_store_tasks

        def popped() -> dict[int, Any]:
            completed = pop()
            self._results += [result.is_successful() for result in completed.values()]
            return dict(completed)

        self.adapter.pop_completed_store_tasks = popped

    def store(self, entries: Mapping[Any, bytes]) -> list[bool]:
        """Store a payload under each key; return whether each store task to L2 succeeded.

        Raises:
            StoreError: when L1 takes fewer, or L2 does not finish in time.
        """
        before = len(self._results)
        self.write(entries)
        self._wait(lambda: len(self._results) > before and self._idle(), "store")
        return self._results[before:]

    def write(self, entries: Mapping[Any, bytes]) -> None:
        """Store a payload under each key in L1, and wait for nothing."""
        reserve = self.manager.reserve_write
        mode = ("new",) if "mode" in inspect.signature(reserve).parameters else ()
        reserved = reserve(list(entries), self._layout, *mode)
        for key, memory in reserved.items():
            memoryview(memory.byte_array).cast("B")[:] = entries[key]
        self.manager.finish_write(list(reserved))
        if len(reserved) < len(entries):
            raise StoreError("L1 did not take all", value=len(reserved), expected=str(len(entries)))

    def forget(self) -> None:
        """Empty L1."""
        self.manager.clear(force=True)

    def scribble(self) -> None:
        """Write over the free memory of L1: what was there may not pass for what is loaded."""
        from lmcache.v1.distributed.error import L1Error

        managers = getattr(self.manager, "_l1_managers_by_id", None)
        (l1,) = managers.values() if managers else (self.manager._l1_manager,)
        taken = []
        while True:
            error, memory = l1._memory_manager.allocate(self._layout, 1)
            if error != L1Error.SUCCESS:
                break
            taken += memory
            memory[0].tensor.fill_(0xA5)
        l1._memory_manager.free(taken)

    def load(self, keys: Sequence[Any]) -> list[bytes | None]:
        """Ask for `keys`, as many chunks of one prompt; return each payload, None for a miss.

        Raises:
            StoreError: when there is no answer in time.
        """
        found = self.prefetch(keys)
        payloads: list[bytes | None] = []
        for key, there in zip(keys, found, strict=True):
            if not there:
                payloads.append(None)
                continue
            with self.manager.read_prefetched_results([key]) as objects:
                payloads.append(bytes(objects[0].byte_array) if objects else None)
            self.manager.finish_read_prefetched([key])
        return payloads

    def prefetch(self, keys: Sequence[Any]) -> list[bool]:
        """Bring `keys` to L1 and lock them; return for each whether it is there."""
        handle = self.manager.submit_prefetch_task(self._request(list(keys)))
        answer: list[Any] = []

        def answered() -> bool:
            result = self.manager.query_prefetch_status(handle)
            if result is not None:
                answer.append(getattr(result, "hit_cells", [result])[0])
            return bool(answer)

        self._wait(answered, "load")
        return [bool(answer[0].test(index)) for index in range(len(keys))]

    def _request(self, keys: list[Any]) -> Any:
        from lmcache.v1.distributed import api

        if hasattr(api, "PrefetchTaskSpec"):
            row = api.GroupedObjectKeys(keys=keys, object_group_id=0, layout_desc=self._layout)
            return api.PrefetchTaskSpec(key_groups=[row])
        window = api.AttnWindowDesc(num_chunks_in_sw=[-1])
        return api.PrefetchRequestSpec(
            keys=keys, group_layout_descs={0: self._layout}, attn_desc=window
        )

    def _idle(self) -> bool:
        status = self.manager.report_status()["store_controller"]
        return not status["pending_keys_count"] and not status["in_flight_task_count"]

    def _wait(self, done: Any, act: str) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while not done():
            if time.monotonic() > deadline:
                raise StoreError(f"no {act} in {self._timeout_seconds:g} s")
            time.sleep(POLL_SECONDS)


@contextmanager
def opened_tier(
    adapter: Mapping[str, Any],
    *,
    payload_bytes: int,
    l1_gib: float = 0.1,
    timeout_seconds: float = 30,
) -> Iterator[Tier]:
    """Start a storage manager over LMCache's adapter for the length of a `with` block."""
    from lmcache.v1.distributed import config
    from lmcache.v1.distributed.storage_manager import StorageManager

    arguments = ["--l1-size-gb", str(l1_gib), "--eviction-policy", "LRU"]
    arguments += ["--l2-adapter", json.dumps(adapter)]
    parsed = config.get_arg_parser().parse_args(arguments)
    parsed.shm_name = ""  # LMCache's is the process': two of its L1s would be one memory
    manager = StorageManager(config.parse_args_to_config(parsed))
    try:
        yield Tier(manager, payload_bytes, timeout_seconds)
    finally:
        manager.close()
