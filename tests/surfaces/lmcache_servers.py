# SPDX-License-Identifier: Apache-2.0
"""Real servers of any tree: LMCache, its coordinator, redis; and waiting for what they do later."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import requests
from lmcache_trees import Tree
from sdk_client import MODEL, SDKClient, client_of

from kvseal.engines.lmcache import CacheServer, started_lmcache
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.process import EngineProcess, free_port, segment_name

CHUNK = 16
RUN_ID = "kvseal-surfaces"
SECONDS = 20.0
WARM_UP = {
    "instance_id": "warm-up",
    "incarnation": 1,
    "seq": 1,
    "event_type": "store",
    "tier": "l1",
    "backend": "dram",
    "entries": [
        {
            "key": {
                "chunk_hash_hex": "00" * 32,
                "model_name": "warm-up",
                "kv_rank": 0x01000100,
                "object_group_id": 0,
                "cache_salt": "warm-up",
            },
            "size_bytes": 1,
            "token_ids": list(range(CHUNK)),
            "token_offset": 0,
        }
    ],
}
COMMANDS = """
import contextlib, io, json, sys
from lmcache.cli.main import main
shown = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["lmcache", *words]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    shown.append(printed.getvalue())
print(json.dumps(shown))
"""
T = TypeVar("T")
_numbers = itertools.count()


def until(done: Callable[[], T], seconds: float = SECONDS) -> T:
    """Ask until the answer is true, and return it; after `seconds`, whatever it is then."""
    deadline = time.monotonic() + seconds
    while True:
        answer = done()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


@dataclass
class Node:
    """One LMCache server with a client of the same LMCache beside it."""

    tree: Tree
    client: SDKClient
    url: str
    http: LMCacheHTTP
    log: Path

    def chunks_in_l2(self, salt: str, variant: str = "") -> list[dict[str, Any]]:
        """Return the listed objects of one tenant and variant."""
        name = f"{MODEL}##tv1-{variant}" if variant else MODEL
        return [
            entry
            for entry in self.http.list_objects("l2")
            if entry["key"]["cache_salt"] == salt and entry["key"]["model_name"] == name
        ]

    def forget(self) -> None:
        """Empty L1, once nothing is under way."""
        self.http.clear(memory_only=True)


def shared_folder(folder: Path) -> dict[str, Any]:
    """Return the L2 adapter of a folder that several servers share, and that can be listed."""
    return {
        "type": "plugin",
        "module_path": "listing_adapter",
        "class_name": "ListingAdapter",
        "adapter_params": {"base_path": str(folder)},
        "shared": True,
    }


@contextlib.contextmanager
def node(
    tree: Tree,
    folder: Path,
    *,
    l2: Sequence[Mapping[str, Any]] = (),
    arguments: Sequence[str] = (),
    **variables: str,
) -> Iterator[Node]:
    """Start an LMCache server and a client of it for the length of a `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        client_of(inherited(tree.variables()), folder / "client.log") as client,
        server(tree, folder, l2=l2, arguments=arguments, **variables) as (url, http),
    ):
        client.connect(url, http.base_url)
        yield Node(tree, client, url, http, folder / "server.log")
        client.disconnect()


@contextlib.contextmanager
def server(
    tree: Tree,
    folder: Path,
    *,
    l2: Sequence[Mapping[str, Any]] = (),
    arguments: Sequence[str] = (),
    **variables: str,
) -> Iterator[tuple[str, LMCacheHTTP]]:
    """Start an LMCache server alone; its client may outlive it."""
    settings = CacheServer(
        chunk_size_tokens=CHUNK,
        l1_gib=1,
        start_timeout_seconds=120,
        l2_adapters=tuple(l2),
        arguments=tuple(arguments),
        environment=tree.variables(**variables),
    )
    with started_lmcache(
        settings,
        python=sys.executable,
        log=folder / "server.log",
        segment=segment_name(f"{RUN_ID}-{next(_numbers)}"),
        run_id=RUN_ID,
    ) as started:
        started.wait_ready()
        yield started.endpoint.url, LMCacheHTTP(started.endpoint.http_url)


@dataclass(frozen=True)
class Coordinator:
    """A running coordinator."""

    url: str
    arguments: tuple[str, ...] = field(repr=False)

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer to a GET, as JSON."""
        return self.ask("GET", path, params=query)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Return the answer to any request, as JSON; its error is an assertion's."""
        answer = self.answer(method, path, **more)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def answer(self, method: str, path: str, **more: Any) -> requests.Response:
        """Return the answer to any request, whatever its status."""
        return requests.request(method, self.url + path, timeout=30, **more)

    def keys(self, salt: str) -> list[dict[str, Any]]:
        """Return what the directory lists of one tenant."""
        listed = self.get("/directory/keys", limit=10000)["keys"]
        return [entry for entry in listed if entry["key"]["cache_salt"] == salt]


@contextlib.contextmanager
def coordinator(
    tree: Tree, folder: Path, port: int = 0, arguments: Sequence[str] = ()
) -> Iterator[Coordinator]:
    """Start a coordinator for the length of a `with` block."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        *("-m", "lmcache.cli.main", "coordinator"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--chunk-size", str(CHUNK), "--enable-blend-lookup"),
        *arguments,
    ]
    log = folder / "coordinator.log"
    with EngineProcess(
        "coordinator", command, env=tree.variables(), log=log, run_id=RUN_ID
    ) as process:
        process.wait_ready(
            lambda: _answers(f"{url}/healthz"), timeout_seconds=60, option="the test's own limit"
        )
        reporting = (
            *("--coordinator-url", url, "--coordinator-advertise-ip", "127.0.0.1"),
            *("--coordinator-event-reporting", "--coordinator-event-flush-interval", "0.1"),
            *("--coordinator-heartbeat-interval", "1"),
        )
        # The first tokens take it longer (a compilation) than a server waits with a report.
        requests.post(f"{url}/events", json={"batches": [WARM_UP]}, timeout=60)
        yield Coordinator(url, reporting)


@contextlib.contextmanager
def redis(folder: Path, port: int = 0) -> Iterator[int]:
    """Start redis-server, which keeps its data in `folder`; yields the port."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        pytest.skip("no redis-server on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    command = [
        binary,
        *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
        *("--appendonly", "yes", "--appendfsync", "always"),
    ]
    with EngineProcess(
        "redis", command, env={}, log=folder / "redis.log", run_id=RUN_ID
    ) as process:
        process.wait_ready(
            lambda: b"PONG" in redis_says(port, "PING"),
            timeout_seconds=20,
            option="the test's own limit",
        )
        yield port


def redis_says(port: int, *words: str) -> bytes:
    """Send one command to redis and return what it answers, as it comes."""
    done = subprocess.run(
        ["redis-cli", "-p", str(port), *words], capture_output=True, timeout=20, check=False
    )
    return done.stdout


def command_line(tree: Tree, *commands: Sequence[str], timeout: float = 120) -> list[str]:
    """Run commands of LMCache's command line, one process for all; return what each prints."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        env=inherited(tree.variables()),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{commands}: {done.stdout} {done.stderr}"[-3000:]
    return list(json.loads(done.stdout.splitlines()[-1]))


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that gets nothing else of this one's Python."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | dict(variables)
