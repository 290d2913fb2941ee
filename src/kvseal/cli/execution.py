# SPDX-License-Identifier: Apache-2.0
"""What the verbs that run engines share: record, judge, and leave a whole run folder.

However a run ends, its folder holds a valid result.json; until the history
reaches its end that result says INCONCLUSIVE.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kvseal import store
from kvseal.drivers.recording import Recording, recorded
from kvseal.host.facts import HostFacts, gather
from kvseal.process import Interrupts, shielded
from kvseal.records.events import TABLE
from kvseal.records.fields import EventTable
from kvseal.spec.runspec import CommonSpec

S = TypeVar("S", bound=CommonSpec)
Judge = Callable[[Path], tuple[int, dict[str, Any]]]
"""From a run folder to an exit status and the document for result.json."""


def prepare_process() -> None:
    """Set what must be set before anything imports torch or LMCache.

    The process that uses LMCache's SDK must not see a GPU (docs/upstream-notes.md);
    the engines get theirs from the run spec.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("LMCACHE_MP_TRANSFER_MODE", None)
    _quieten()


def prepare_verifier() -> None:
    """The same for the verifier, which only reads LMCache's settings and asks a hub for a commit.

    The engines inherit CUDA_VISIBLE_DEVICES as the user set it.
    """
    _quieten()


def _quieten() -> None:
    os.environ |= {
        # What these say of themselves belongs to no one's terminal; the engines,
        # whose logs are kept, are started with levels of their own.
        "LMCACHE_LOG_LEVEL": "WARNING",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "LMCACHE_TRACK_USAGE": "false",
        "DO_NOT_TRACK": "1",
    }


def execute(
    spec: S,
    folder: Path,
    name: str,
    driver: Callable[[S, Recording, HostFacts], None],
    judge: Judge,
    *,
    table: EventTable = TABLE,
) -> tuple[int, dict[str, Any]]:
    """Run `driver` as `name` into the new `folder`; return exit status and result.

    `table` has the events that the driver writes.

    Raises:
        KvsealError, Interrupted: as the driver did, once the folder is whole.
    """
    recording = None
    with Interrupts():
        host = gather(spec)
        try:
            with recorded(spec, folder, host, name, table) as recording:
                _conclude(folder, judge)
                driver(spec, recording, host)
        finally:
            # Only a folder that this run made: one that was there before is not touched.
            if recording is not None:
                with shielded():
                    status, result = _conclude(folder, judge)
    return status, result


def _conclude(folder: Path, judge: Judge) -> tuple[int, dict[str, Any]]:
    status, result = judge(folder)
    store.write_json(folder / "result.json", result)
    store.write_manifest(folder)
    return status, result
