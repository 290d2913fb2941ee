# SPDX-License-Identifier: Apache-2.0
"""One side of backends.py: drives LMCache's L2 adapters in its own environment.

Reads a JSON request a line and answers each with one: `open` an adapter, make a
`pass` over new entries (times in seconds), `close` it. LMCache's own adapter
classes over its own memory; a pass that brings back other bytes than it stored
ends the program.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from kvseal.backends.adapter import Adapter, opened_adapter

VARIANT = f"##tv1-q1{'a' * 32}"


def main() -> int:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; answers stay apart
    gc.disable()  # a collection at its own time would be counted to one side
    stack, adapter, size = ExitStack(), None, 0
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = None
        if request["do"] == "open":
            os.environ.update(request["environment"])
            sys.path[:0] = [path for path in request["python_path"] if path not in sys.path]
            size = request["payload_bytes"]
            opened = opened_adapter(request["adapter"], payload_bytes=size)
            adapter = stack.enter_context(opened)
            answer = version("lmcache")
        elif request["do"] == "close":
            stack.close()
            gc.collect()
        elif adapter is not None:
            answer = one_pass(adapter, request["seed"], request["count"], size, request["variant"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def one_pass(adapter: Adapter, seed: str, count: int, size: int, variant: bool) -> dict[str, float]:
    """Look up `count` new entries, store them, look them up, retrieve and remove them.

    Raises:
        RuntimeError: something came out that was not to be.
    """
    from lmcache.v1.distributed.api import ObjectKey

    model = f"bench/ordinary{VARIANT if variant else ''}"
    hashes = [hashlib.sha256(f"{seed} {n}".encode()).digest() for n in range(count)]
    entries = {ObjectKey(one, model, 0x01000100): (one * (size // 32)) for one in hashes}
    keys, clock = list(entries), time.perf_counter
    start = clock()
    missed = adapter.found(keys)
    looked_up = clock()
    adapter.store(entries)
    stored = clock()
    found = adapter.found(keys)
    looked_up_again = clock()
    back = adapter.load(keys)
    end = clock()
    if any(missed) or not all(found) or back != list(entries.values()):
        raise RuntimeError(f"{sum(missed)} found too early, {sum(found)} of {count} found")
    adapter.delete(keys)
    return {
        "lookup that misses": looked_up - start,
        "store": stored - looked_up,
        "lookup that finds": looked_up_again - stored,
        "retrieve": end - looked_up_again,
    }


if __name__ == "__main__":
    sys.exit(main())
