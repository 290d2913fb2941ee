# SPDX-License-Identifier: Apache-2.0
"""What payload seals cost: a variant's store and load with and without, and ordinary ones.

`python bench/payload_seal.py --python PYTHON --plain TREE --sealed TREE --out seal.json`.
The trees are two copies of one LMCache, with all of kvseal's edits and with all but
`lmcache_payload_seal`; PYTHON has what LMCache needs. One process for each of three
sides (`plain`, `sealed`, `off`: sealed with the switch off), all open at once; a
round lets one after the other store and load the same chunks, in an order that
turns with each round, so that a busy machine is busy for all of them. A ratio is
that of one round; median and range of the rounds are told. Objects lie in memory
(`mock`, no bandwidth set) or in files (`fs`): the first shows what a seal costs where
nothing else costs anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHUNK_TOKENS = 256
SIZES = {
    # layers, KV heads, head size, bytes of an element (bfloat16)
    "SmolLM2-135M": (30, 3, 64, 2),
    "Llama-3-8B": (32, 8, 128, 2),
}
VARIANT = "m##tv1-q1" + "b" * 32
KINDS = {"variant": VARIANT, "ordinary": "m"}
SIDES = ("plain", "sealed", "off")


def payload_bytes(model: str) -> int:
    """Return the size of one chunk's keys and values."""
    layers, heads, head_size, element = SIZES[model]
    return 2 * layers * CHUNK_TOKENS * heads * head_size * element


def worker(adapter: Mapping[str, Any], size: int, chunks: int) -> None:
    """Store and load chunks for each line that is read; answer with the seconds of both."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LMCache prints
    from lmcache.v1.distributed.api import ObjectKey

    from kvseal.faults.tier import opened_tier

    # Payloads and, on either side, buffers of loads or of seals.
    l1_gib = 4 * chunks * size / 2**30 + 0.05
    data = os.urandom(size)
    with opened_tier(adapter, payload_bytes=size, l1_gib=l1_gib, timeout_seconds=60) as tier:
        for number, line in enumerate(sys.stdin):
            name = KINDS[line.strip()]
            keys = [
                ObjectKey((number * chunks + i).to_bytes(32, "big"), name, 0x01000100)
                for i in range(chunks)
            ]
            began = time.perf_counter()
            stored = tier.store(dict.fromkeys(keys, data))
            middle = time.perf_counter()
            tier.forget()
            asked = time.perf_counter()
            found = tier.prefetch(keys)
            ended = time.perf_counter()
            right = all(stored) and all(found)
            tier.forget()
            tier.adapter.delete(keys)
            times = {"store": middle - began, "load": ended - asked, "right": right}
            answers.write(json.dumps(times) + "\n")
            answers.flush()


class Side:
    """One process."""

    def __init__(self, python: str, tree: Path, adapter: Any, given: Any, seal: str) -> None:
        path = [str(tree), str(Path(__file__).parents[1] / "src")]
        variables = {
            "PYTHONPATH": os.pathsep.join(path),
            "LMCACHE_LOG_LEVEL": "ERROR",
            "LMCACHE_TRANSFORM_PAYLOAD_SEAL": seal,
        }
        size, chunks = given
        self.process = subprocess.Popen(
            [python, __file__, "--worker", json.dumps([adapter, size, chunks])],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def once(self, kind: str) -> dict[str, Any]:
        """Store and load once; return seconds."""
        print(kind, file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(next(iter(self.process.stdout or ())))
        if not answer.pop("right"):
            raise SystemExit(f"{kind}: not all was stored and found")
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)


def measure(given: argparse.Namespace, model: str, kind_of_store: str) -> dict[str, Any]:
    """Measure one size on one adapter; return ratios and seconds."""
    size = payload_bytes(model)
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        sides = {}
        for side in SIDES:
            adapter = {"type": "mock", "max_size_gb": 2, "mock_bandwidth_gb": 1000}
            if kind_of_store == "fs":
                adapter = {"type": "fs", "base_path": f"{folder}/{side}"}
            tree = given.plain if side == "plain" else given.sealed
            seal = "off" if side == "off" else "on"
            sides[side] = Side(given.python, tree, adapter, (size, given.chunks), seal)
        try:
            for kind in KINDS:
                for side in SIDES:
                    sides[side].once(kind)  # the first of everything is slower
            for number in range(given.rounds):
                turn = number % len(SIDES)
                for kind in KINDS:
                    order = SIDES[turn:] + SIDES[:turn]
                    rounds[kind].append({side: sides[side].once(kind) for side in order})
        finally:
            for opened in sides.values():
                opened.close()
    found: dict[str, Any] = {"model": model, "store": kind_of_store, "payload_bytes": size}
    for kind in KINDS:
        for act in ("store", "load"):
            for top, bottom in (("sealed", "off"), ("sealed", "plain")):
                ratios = sorted(one[top][act] / one[bottom][act] for one in rounds[kind])
                found[f"{kind}_{act}_{top}_by_{bottom}"] = {
                    "median": round(statistics.median(ratios), 3),
                    "quartiles": [round(q, 3) for q in statistics.quantiles(ratios, n=4)[::2]],
                }
            seconds = [one["sealed"][act] - one["off"][act] for one in rounds[kind]]
            added = statistics.median(seconds) / given.chunks * 1000
            found[f"{kind}_{act}_added_ms_per_chunk"] = round(added, 3)
            seconds = [one["off"][act] for one in rounds[kind]]
            found[f"{kind}_{act}_off_ms_per_chunk"] = round(
                statistics.median(seconds) / given.chunks * 1000, 3
            )
    return found


def main() -> int:
    """Measure what was asked for and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--plain", type=Path)
    parser.add_argument("--sealed", type=Path)
    parser.add_argument("--folder", type=Path, help="where files go; default: the system's")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--model", action="append", choices=list(SIZES))
    parser.add_argument("--store", action="append", choices=["mock", "fs"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.worker is not None:
        worker(*given.worker)
        return 0
    if None in (given.plain, given.sealed, given.out):
        parser.error("--plain, --sealed and --out are needed")
    rows = [
        measure(given, model, store)
        for model in given.model or SIZES
        for store in given.store or ("mock", "fs")
    ]
    document = {
        "schema": "kvseal.payload-seal-cost.v1",
        "chunk_tokens": CHUNK_TOKENS,
        "chunks": given.chunks,
        "rounds": given.rounds,
        "cpus": os.cpu_count(),
        "rows": rows,
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
