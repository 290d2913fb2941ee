# SPDX-License-Identifier: Apache-2.0
"""One of LMCache's own L2 adapters with a fault that no store can be made to have.

    {"type": "plugin", "module_path": "kvseal.faults.faulty_adapter",
     "class_name": "FaultyAdapter",
     "adapter_params": {"inner": {"type": "fs", …}, "fault": "late", "seconds": 0.5}}

`late`: a load is answered `seconds` after it ended. `lost_after_lookup`: each
object of a variant is deleted between lookup and load. `flipped_on_load`: one bit
of each is another in the buffer that was asked for. It is the inner adapter
itself, two of its methods replaced. Deterministic. LMCache's `plugin` adapter
makes it; nothing else imports this module, which needs LMCache.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/plugin_l2_adapter.py`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
from lmcache.v1.distributed.l2_adapters.factory import create_l2_adapter_from_registry

from kvseal.errors import OptionError

FAULTS = ("late", "lost_after_lookup", "flipped_on_load")


class FaultyAdapter(L2AdapterInterface):
    """The name that `plugin` asks for; making one makes the inner adapter."""

    def __new__(cls, parameters: dict[str, Any], l1_memory_desc: Any = None) -> Any:
        """Return the adapter of `parameters["inner"]` with the fault."""
        given = parameters["inner"]
        config = get_l2_adapter_config_class(given["type"]).from_dict(given)
        adapter = create_l2_adapter_from_registry(config, l1_memory_desc)
        Loads(adapter, parameters["fault"], float(parameters.get("seconds", 0)))
        return adapter


class Loads:
    """Takes over the loads of one adapter."""

    def __init__(self, adapter: Any, fault: str, seconds: float) -> None:
        if fault not in FAULTS:
            raise OptionError(
                "no such fault", option="fault", value=fault, expected=", ".join(FAULTS)
            )
        self._fault, self._seconds = fault, seconds
        self._adapter = adapter
        self._submit, self._query = adapter.submit_load_task, adapter.query_load_result
        self._loads: dict[int, tuple[float, list[Any]]] = {}
        adapter.submit_load_task, adapter.query_load_result = self.submit, self.query

    def submit(self, keys: list[Any], objects: list[Any]) -> int:
        """Begin a load, with whatever goes wrong before it."""
        variants = [key for key in keys if "##tv1-" in key.model_name]
        if self._fault == "lost_after_lookup" and variants:
            self._adapter.delete(variants)
        task: int = self._submit(keys, objects)
        struck = [memory for key, memory in zip(keys, objects, strict=True) if key in variants]
        self._loads[task] = (time.monotonic() + self._seconds, struck)
        if self._fault == "late":
            signal = (self._adapter.get_load_event_fd(), 1)
            late = threading.Timer(self._seconds, os.eventfd_write, signal)
            late.daemon = True
            late.start()
        return task

    def query(self, task: int) -> Any:
        """Return what was loaded, with whatever goes wrong behind it."""
        answer_at, struck = self._loads.get(task, (0.0, []))
        if self._fault == "late" and time.monotonic() < answer_at:
            return None
        found = self._query(task)
        if found is not None:
            self._loads.pop(task, None)
            for memory in struck if self._fault == "flipped_on_load" else ():
                memoryview(memory.byte_array).cast("B")[0] ^= 1
        return found
