# SPDX-License-Identifier: Apache-2.0
"""A process with LMCache that stores objects through its own L2 adapters; reads JSON on stdin.

[[configuration of an adapter, [[hash, model, rank, group, salt, size], …]], …]

The bytes of an object are its place in the list and one, repeated. Started by
test_written_stores.py.
"""

from __future__ import annotations

import ctypes
import json
import select
import sys
import time
from types import SimpleNamespace
from typing import Any

from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class


def memory_object(place: int, size: int) -> Any:
    buffer = ctypes.create_string_buffer(bytes([place + 1]) * size, size)
    view = memoryview(buffer).cast("B")
    return SimpleNamespace(
        byte_array=view, get_size=lambda: size, data_ptr=ctypes.addressof(buffer), keep=buffer
    )


def store(configuration: dict[str, Any], objects: list[list[Any]]) -> None:
    config = get_l2_adapter_config_class(configuration["type"]).from_dict(configuration)
    adapter = create_l2_adapter(config)
    try:
        for place, (digits, model, rank, group, salt, size) in enumerate(objects):
            key = ObjectKey(bytes.fromhex(digits), model, rank, group, salt)
            memory = memory_object(place, size)  # held until it is stored: adapters keep addresses
            task = adapter.submit_store_task([key], [memory])
            ended: dict[int, Any] = {}
            deadline = time.monotonic() + 60
            while task not in ended and time.monotonic() < deadline:
                select.select([adapter.get_store_event_fd()], [], [], 0.05)
                ended.update(adapter.pop_completed_store_tasks())
            if not ended[task].is_successful():
                print(f"{configuration['type']}: {key} was not stored", file=sys.stderr)
                sys.exit(1)
    finally:
        adapter.close()


if __name__ == "__main__":
    for adapter, objects in json.load(sys.stdin):
        store(adapter, objects)
