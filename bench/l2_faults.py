# SPDX-License-Identifier: Apache-2.0
"""What comes back of transformed KV from a faulty second tier, with payload seals and without.

Runs in LMCache's Python, on an LMCache with kvseal's edits:
`python bench/l2_faults.py --backend fs --backend resp --out table.json`. A case
stores three chunks of a variant, the same of another one and an ordinary chunk
by LMCache's own storage manager, empties L1, lets one fault happen (to the second
chunk, or to the whole store) and asks for all again. Each chunk is then `right`
(the bytes that were stored), `miss`, `WRONG` or `no answer`. The table says what
was seen and judges nothing; tests/unit/faults/test_l2_faults.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kvseal.backends import registry
from kvseal.backends.backend import Running, Site
from kvseal.errors import KvsealError, PrerequisiteError, StoreError
from kvseal.faults.stored_objects import (
    FAULTS,
    FolderObjects,
    Objects,
    RespObjects,
    S3Objects,
)
from kvseal.faults.tier import Tier, opened_tier

VARIABLE = "LMCACHE_TRANSFORM_PAYLOAD_SEAL"
PAYLOAD_BYTES = 65536
VARIANT, OTHER = "q1" + "b" * 32, "q1" + "c" * 32
LATE_SECONDS = 0.7
ANSWER_SECONDS = 6.0
WRITERS = 12


def payload(*of: Any) -> bytes:
    """Return the bytes that belong to `of`, always the same."""
    return random.Random(repr(of)).randbytes(PAYLOAD_BYTES)  # noqa: S311 - no secret


def key(variant: str, index: int) -> Any:
    """Return LMCache's key of a chunk, of ordinary KV where `variant` is empty."""
    from lmcache.v1.distributed.api import ObjectKey

    model = f"m##tv1-{variant}" if variant else "m"
    return ObjectKey(bytes([index + 1] * 32), model, 0x01000100)


CHUNKS = 3
ORDINARY = 3
"""Index of the ordinary chunk, whose own fate shows what a fault does to others."""


@dataclass
class Case:
    """One store under one fault."""

    name: str
    running: Running
    folder: Path
    tier: Tier

    def objects(self) -> Objects:
        """Return the store as its own side shows it."""
        adapter = self.running.adapters[0]
        if adapter["type"] == "resp":
            return RespObjects(adapter["port"])
        if adapter["type"] == "s3":
            return S3Objects(int(adapter["s3_endpoint"].rpartition(":")[2]))
        return FolderObjects(self.folder)

    def fill(self) -> None:
        """Store all chunks; nothing may fail here."""
        entries = {key(v, i): payload(v, i) for v in (VARIANT, OTHER) for i in range(CHUNKS)}
        stored = self.tier.store(entries | {key("", ORDINARY): payload("", ORDINARY)})
        if not all(stored):
            raise StoreError("a store failed before any fault", value=stored)

    def ask(
        self, indices: Sequence[int] = tuple(range(CHUNKS)), variant: str = VARIANT
    ) -> list[str]:
        """Ask for chunks of one prompt, not from L1; return what came of each."""
        self.tier.forget()
        wanted = {key(variant, i): {payload(variant, i)} for i in indices}
        return self.outcomes(wanted)

    def outcomes(self, wanted: Mapping[Any, set[bytes]]) -> list[str]:
        """Load keys and say of each whether it has one of its right payloads."""
        self.tier.scribble()
        try:
            found = self.tier.load(list(wanted))
        except StoreError:
            return ["no answer"] * len(wanted)
        return [
            "miss" if got is None else "right" if got in right else "WRONG"
            for got, right in zip(found, wanted.values(), strict=True)
        ]


Script = Callable[[Case], list[str]]


def struck(fault: str) -> Script:
    """Return the case in which the second chunk's object has a fault of `stored_objects`."""

    def run(case: Case) -> list[str]:
        case.fill()
        objects = case.objects()
        names = [objects.named(v, key(v, 1).chunk_hash.hex()) for v in (VARIANT, OTHER)]
        before = objects.read(names[0])
        FAULTS[fault](objects, *names)
        if names[0] in objects.names() and objects.read(names[0]) == before:
            raise StoreError("the fault did not happen", value=fault)
        return case.ask()

    return run


def filled(case: Case) -> list[str]:
    """Ask through an adapter that has the fault itself."""
    case.fill()
    return case.ask()


def two_writers(case: Case) -> list[str]:
    """Two LMCaches store the same keys at once, with payloads of their own."""
    keys = [key(VARIANT, i) for i in range(WRITERS)]
    with opened_tier(case.running.adapters[0], payload_bytes=PAYLOAD_BYTES) as second:
        tiers = {"one": case.tier, "two": second}
        threads = [
            threading.Thread(
                target=tier.store, args=({k: payload(who, k.chunk_hash) for k in keys},)
            )
            for who, tier in tiers.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    case.tier.forget()
    right = {k: {payload(who, k.chunk_hash) for who in tiers} for k in keys}
    return case.outcomes(right)


def full(case: Case) -> list[str]:
    """Store more than there is room for; make room and store the rest again."""
    keys = {key(VARIANT, i): payload(VARIANT, i) for i in range(8)}
    results = [case.tier.store({k: data})[0] for k, data in keys.items()]
    if all(results):
        raise StoreError("the store did not get full", value=len(results))
    found = case.ask(range(8))
    grow(case)
    case.tier.forget()
    again = [k for k, stored in zip(keys, results, strict=True) if not stored]
    case.tier.store({k: keys[k] for k in again})
    return found + case.ask(range(8))


def grow(case: Case) -> None:
    """Give the full store room."""
    if case.running.adapters[0]["type"] == "resp":
        RespObjects(case.running.adapters[0]["port"]).command(b"CONFIG", b"SET", b"maxmemory", b"0")
    else:
        mount = ["mount", "-o", "remount,size=8m", str(case.folder.parent)]
        subprocess.run(mount, check=True)


def gone(case: Case) -> list[str]:
    """The store can't be reached, then it can again."""
    case.fill()
    kind = case.running.adapters[0]["type"]
    if kind == "resp":
        RespObjects(case.running.adapters[0]["port"]).command(
            b"CLIENT", b"KILL", b"TYPE", b"normal"
        )
        during = case.ask()
        case.running.restart()
    else:
        away = case.folder.with_name("away")
        case.folder.rename(away)
        during = case.ask()
        away.rename(case.folder)
    return during + case.ask()


def clock_moved(case: Case) -> list[str]:
    """Time and the files' times jump, forward and back."""
    case.fill()
    real, found = time.time, []
    for years in (10, -10):
        moved = years * 31_536_000
        for path in case.folder.rglob("*.data"):
            os.utime(path, (real() + moved, real() + moved))
        time.time = lambda moved=moved: real() + moved
        try:
            found += case.ask()
        finally:
            time.time = real
    return found


SCRIPTS: Mapping[str, Script] = {
    **{fault: struck(fault) for fault in FAULTS},
    "late": filled,
    "lost_after_lookup": filled,
    "flipped_on_load": filled,
    "two_writers": two_writers,
    "full": full,
    "gone": gone,
    "clock_moved": clock_moved,
}
BY_ADAPTER = ("late", "lost_after_lookup", "flipped_on_load")
NOT_FOR = {("s3", "full"): "moto's bucket has no limit", ("s3", "gone"): "moto forgets all it has"}


@contextmanager
def room(backend: str, fault: str, folder: Path) -> Iterator[Path]:
    """Make the folder of a backend, on a small file system of its own where it shall get full."""
    small = fault == "full" and backend != "resp"
    if small:
        if os.geteuid() != 0:
            raise PrerequisiteError("only root can mount the small file system that gets full")
        mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:  # root in a container may not
            raise PrerequisiteError(f"no small file system that gets full: {done.stderr.strip()}")
    try:
        (folder / "store").mkdir()
        yield folder / "store"
    finally:
        if small:
            subprocess.run(["umount", str(folder)], check=True)


def run_case(backend: str, fault: str, seal: str, packages: Sequence[Path]) -> dict[str, Any]:
    """Run one case; return its row."""
    row: dict[str, Any] = {"backend": backend, "fault": fault, "seal": seal}
    if (backend, fault) in NOT_FOR:
        return row | {"skipped": NOT_FOR[backend, fault]}
    os.environ[VARIABLE] = seal
    with tempfile.TemporaryDirectory() as given, tempfile.TemporaryDirectory() as logs:
        try:
            with (
                room(backend, fault, Path(given)) as folder,
                registry.backend(backend).started(
                    Site(folder, run_id="l2faults", logs=Path(logs), packages=packages)
                ) as running,
            ):
                adapter = dict(running.adapters[0])
                if backend == "resp" and fault == "full":
                    limit_resp(adapter["port"])
                if fault in BY_ADAPTER:
                    adapter = {
                        "type": "plugin",
                        "module_path": "kvseal.faults.faulty_adapter",
                        "class_name": "FaultyAdapter",
                        "adapter_params": {
                            "inner": adapter, "fault": fault, "seconds": LATE_SECONDS,
                        },
                    }  # fmt: skip
                with opened_tier(
                    adapter, payload_bytes=PAYLOAD_BYTES, timeout_seconds=ANSWER_SECONDS
                ) as tier:
                    case = Case(backend, running, folder, tier)
                    row["chunks"] = SCRIPTS[fault](case)
                    if fault not in ("two_writers", "full"):
                        row["ordinary"] = case.ask([ORDINARY], "")[0]
                    status = tier.adapter.report_status().get("transform_payload_seal", {})
                    row["refused"] = status.get("refused", 0)
                if fault in ("full", "gone"):
                    with opened_tier(adapter, payload_bytes=PAYLOAD_BYTES) as tier:
                        row["restarted"] = Case(backend, running, folder, tier).ask()
        except PrerequisiteError as error:
            row["skipped"] = error.message
    return row


def limit_resp(port: int) -> None:
    """Let a Redis or Valkey server take some 300 KiB more than it holds."""
    server = RespObjects(port)
    used = next(
        int(line.partition(b":")[2])
        for line in server.command(b"INFO", b"memory").splitlines()
        if line.startswith(b"used_memory:")
    )
    server.command(b"CONFIG", b"SET", b"maxmemory", str(used + 300_000).encode())
    server.command(b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction")


def main() -> int:
    """Run the cases that were asked for and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", action="append", required=True)
    parser.add_argument("--fault", action="append", choices=list(SCRIPTS))
    parser.add_argument("--seal", action="append", choices=["on", "off"])
    parser.add_argument("--packages", action="append", type=Path, default=[])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = [
        run_case(backend, fault, seal, given.packages)
        for backend in given.backend
        for fault in given.fault or SCRIPTS
        for seal in given.seal or ["on", "off"]
    ]
    document = {"lmcache": version("lmcache"), "payload_bytes": PAYLOAD_BYTES, "rows": rows}
    given.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except KvsealError as error:
        print(error, file=sys.stderr)
        status = error.exit_status
    sys.stdout.flush()
    sys.stderr.flush()
    # A load without an answer leaves a thread in LMCache's C++ that never ends.
    os._exit(status)
