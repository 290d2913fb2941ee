# SPDX-License-Identifier: Apache-2.0
"""What lasts: the exact variant after a restart of everything, and on a machine that is new.

One life stores, pins and is traced; then server, coordinator and redis are
started again; then a server that shares nothing but a copy of the folder reads
it, from another path, with another seed, segment and port. The lives are lived
once, and the tests look at what was seen.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lmcache_servers import (
    command_line,
    coordinator,
    inherited,
    redis,
    server,
    shared_folder,
    until,
)
from lmcache_trees import Tree
from sdk_client import MODEL, SDKClient, client_of
from shared_stores import Stores
from stored_case import Case

CASE = Case("lasting", list(range(64)), 0)
VARIANT, OTHER, LOCAL = CASE.variant(), CASE.variant(number=1), CASE.variant("r")
NAMES = {"": "ordinary", VARIANT: "variant", OTHER: "other variant", LOCAL: "request-local"}
RECORDS = """
import json, sys
from lmcache.v1.mp_observability.trace import codecs
from lmcache.v1.mp_observability.trace.reader import TraceReader
seen = []
with TraceReader(sys.argv[1]) as reader:
    for record in reader.records():
        args = codecs.decode_args(record.args)
        keys = args.get("keys")
        if keys is None and "spec" in args:
            spec = args["spec"]
            keys = getattr(spec, "keys", None)
            keys = [k for g in spec.key_groups for k in g.keys] if keys is None else keys
        seen.append([record.qualname.rpartition("StorageManager.")[2],
                     sorted({key.model_name for key in keys or ()})])
print(json.dumps(seen))
"""


@dataclass(frozen=True)
class Lives:
    """What each life saw; `traces` are the files that the first two left."""

    tree: Tree
    stored: dict[str, str]
    restarted: dict[str, Any]
    redis_restarted: dict[str, Any]
    fresh: dict[str, Any]
    directories: dict[str, list[str]]
    pins: list[str] | None
    traces: dict[str, Path]
    folder: Path


def _read(client: SDKClient) -> dict[str, Any]:
    return {NAMES[v]: client.retrieve(CASE.tokens, CASE.salt, v) for v in NAMES}


@pytest.fixture(scope="module")
def lives(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Live all lives."""
    folder = tmp_path_factory.mktemp("lasting")
    new = tree.version == "0.5.6"
    kept = ("--checkpoint-path", str(folder / "checkpoint"), "--checkpoint-interval", "0")
    kept += ("--metadata-path", str(folder / "metadata"))
    settings = kept if new else ()
    traces = {"storage": folder / "storage.lct", "events": folder / "events.lct"}

    def traced(level: str) -> tuple[str, ...]:
        return ("--trace-level", level, "--trace-output", str(traces[level]))

    seen: dict[str, Any] = {"directories": {}, "pins": None}
    with client_of(inherited(tree.variables()), folder / "client.log") as client:
        with redis(folder / "redis") as port:
            stores = Stores(folder / "l2", port)
            with coordinator(tree, folder, arguments=settings) as first:
                arguments = (*first.arguments, *traced("storage"))
                with server(tree, folder, l2=stores.l2, arguments=arguments) as (url, http):
                    client.connect(url, http.base_url)
                    seen["stored"] = {
                        NAMES[v]: client.store(CASE.tokens, number, CASE.salt, v)
                        for number, v in enumerate(("", LOCAL, VARIANT))
                    }
                    assert stores.hold(CASE.salt, 8)
                    assert until(lambda: len(first.keys(CASE.salt)) == 8)
                    body = {"world_size": 1, "token_ids": CASE.tokens, "cache_salt": CASE.salt}
                    name = {"model_name": f"{MODEL}##tv1-{VARIANT}"}
                    first.ask("POST", "/cache/pins", json=body | name)
                    _read(client)
                    client.disconnect()
        # Everything again, at the same places.
        with redis(folder / "redis", port), coordinator(tree, folder, arguments=settings) as again:
            seen["directories"]["restored"] = _names(again.keys(CASE.salt))
            if new:
                pins = again.get("/cache/pins", cache_salt=CASE.salt)["pins"]
                seen["pins"] = _names(pins)
            arguments = (*again.arguments, *(traced("events") if new else ()))
            with server(tree, folder, l2=stores.l2, arguments=arguments) as (url, http):
                client.connect(url, http.base_url)
                seen["restarted"] = _read(client)
                http.clear(memory_only=True)
                with stores.only_redis(CASE.salt):
                    seen["redis_restarted"] = _read(client)
                longer = Case(f"{CASE.salt}-again", CASE.tokens, 1)
                client.store(longer.tokens, 5, longer.salt, VARIANT)
                client.store(longer.tokens, 6, longer.salt, LOCAL)
                assert until(lambda: len(again.keys(longer.salt)) == 4)
                client.disconnect()
        # Nothing but the files.
        copied = folder / "elsewhere" / "copy"
        shutil.copytree(folder / "l2", copied)
        alone = {"l2": [shared_folder(copied)], "PYTHONHASHSEED": "1", "HOSTNAME": "another"}
        with server(tree, folder / "elsewhere", **alone) as (url, http):
            client.connect(url, http.base_url)
            seen["fresh"] = _read(client)
            client.disconnect()
    return Lives(tree=tree, traces=traces, folder=folder, **seen)


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return sorted({entry["key"]["model_name"] for entry in entries})


@pytest.mark.parametrize("life", ["restarted", "redis_restarted", "fresh"])
def test_the_exact_variant_is_found_and_no_other(lives: Lives, life: str) -> None:
    assert getattr(lives, life) == {
        "ordinary": lives.stored["ordinary"],
        "variant": lives.stored["variant"],
        "other variant": 0,
        "request-local": 0,
    }


def test_a_coordinator_comes_back_with_exact_names(lives: Lives) -> None:
    if lives.tree.version == "0.5.4":
        # It keeps nothing, and a server does not tell again what lies in its store.
        assert lives.directories["restored"] == []
        return
    assert lives.directories["restored"] == [MODEL, f"{MODEL}##tv1-{VARIANT}"]
    assert lives.pins == [f"{MODEL}##tv1-{VARIANT}"]
    for name in ("checkpoint", "metadata"):
        assert LOCAL.encode() not in (lives.folder / name).read_bytes()


def test_a_trace_has_exact_names_and_none_that_is_request_local(lives: Lives) -> None:
    trace = lives.traces["storage"]
    assert VARIANT.encode() in trace.read_bytes()
    assert LOCAL.encode() not in trace.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", RECORDS, str(trace)],
        env=inherited(lives.tree.variables()),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    calls = json.loads(done.stdout.splitlines()[-1])
    assert {name for _, names in calls for name in names} == {
        MODEL,
        f"{MODEL}##tv1-{VARIANT}",
        f"{MODEL}##tv1-{OTHER}",
    }
    stores = [names for call, names in calls if call == "reserve_write"]
    assert stores == [[MODEL], [f"{MODEL}##tv1-{VARIANT}"]]


def test_a_trace_is_described_and_replayed(lives: Lives, tmp_path: Path) -> None:
    trace = str(lives.traces["storage"])
    storage = ("--l1-size-gb", "0.1", "--eviction-policy", "LRU")
    told = str(tmp_path / "replayed.jsonl")
    replay = ("trace", "replay", trace, *storage, "--output-dir", str(tmp_path), "--no-csv")
    commands: list[tuple[str, ...]] = [("trace", "info", trace)]
    if lives.tree.version != "0.5.4":
        commands.append(("trace", "info", str(lives.traces["events"])))
    shown = command_line(lives.tree, *commands, (*replay, "--jsonl-out", told))
    assert all(shown)
    assert "##tv" not in "".join(shown)
    calls = [json.loads(text) for text in Path(told).read_text("utf-8").splitlines()]
    assert calls
    assert [call for call in calls if call["failed"]] == []


def test_replayed_events_name_the_variant_and_no_request_local_entry(
    lives: Lives, tmp_path: Path
) -> None:
    if lives.tree.version == "0.5.4":
        assert not lives.traces["events"].exists()  # it has no such trace
        return
    trace = lives.traces["events"]
    assert VARIANT.encode() in trace.read_bytes()
    assert LOCAL.encode() not in trace.read_bytes()
    with coordinator(lives.tree, tmp_path) as told:
        replay = ("trace", "replay-events", str(trace), "--coordinator-url", told.url)
        command_line(lives.tree, replay)
        assert _names(told.keys(f"{CASE.salt}-again")) == [f"{MODEL}##tv1-{VARIANT}"]
