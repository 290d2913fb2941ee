# SPDX-License-Identifier: Apache-2.0
"""Stores that LMCache's own adapters wrote, each with a watch on what is asked of it.

redis-server is started on loopback, and moto for S3 where
KVSEAL_TEST_BACKEND_PACKAGES names a folder that has it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kvseal.audit.key_text import KeyText, write_fs, write_native
from kvseal.audit.stores import Store
from kvseal.identity.variant import decorate
from kvseal.process import free_port

WRITER = Path(__file__).with_name("writer.py")
MODEL, BUCKET, RANK, SIZE = "org/model-1", "kv-0", 0x01000100, 8192
SALT = "tenant ü+a"
SECRETS = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret"}
READS = {"scan", "strlen", "type", "getrange", "hello", "info", "config|resetstat"}
READS |= {"client|setinfo", "client|setname", "client|maint_notifications"}


@dataclass
class Live:
    """A store that was written: its reader, a way to add to it, and the proof that it was read."""

    open: Callable[..., Store]
    put: Callable[[str, bytes], None]
    watched: Callable[[Callable[[], Any]], Any]
    write: Callable[[KeyText], str] = write_native


def digits(place: int) -> str:
    return f"{place + 1:02x}" * 32


@contextmanager
def started(*command: str, port: int, **options: Any) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               **options)  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.connect()
                connection.close()
                break
            assert process.poll() is None and time.monotonic() < deadline, f"{command[0]}: no start"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def proxy(port: int, before: str = "") -> Iterator[tuple[int, list[str]]]:
    """Hand requests on to `port`, with `before` in front of their paths; yield port and methods.

    LMCache names a bucket in the host name, and `kv-0.localhost` has no address everywhere.
    """
    methods: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            methods.append(self.command)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            onward = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("host", "content-length")}  # fmt: skip
            onward.request(self.command, before + self.path, body, headers)
            answer = onward.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            length = answer.getheader("content-length") or "0"
            self.send_header("Content-Length", length if self.command == "HEAD" else f"{len(data)}")
            self.end_headers()
            self.wfile.write(data)
            onward.close()

        def __getattr__(self, name: str) -> Any:  # do_GET, do_PUT and all others
            if name.startswith("do_"):
                return self.pass_on
            raise AttributeError(name)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield listening.server_port, methods
    finally:
        listening.shutdown()
        listening.server_close()


def watched_folder(folder: Path) -> Callable[[Callable[[], Any]], Any]:
    def state() -> dict[str, Any]:
        return {
            path.name: (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes())
            for path in folder.iterdir()
        }

    def watch(work: Callable[[], Any]) -> Any:
        before = state()
        done = work()
        assert state() == before
        return done

    return watch


def live_folder(folder: Path) -> Live:
    from kvseal.audit.stores.fs import FolderStore

    def put(name: str, data: bytes) -> None:
        (folder / name).write_bytes(data)

    return Live(lambda: FolderStore(folder), put, watched_folder(folder), write_fs)


def live_redis(port: int) -> Live:
    import redis

    from kvseal.audit.stores.resp import RespStore

    client = redis.Redis(port=port)

    def watch(work: Callable[[], Any]) -> Any:
        client.config_resetstat()
        before = sorted(client.keys()), client.info("persistence")["rdb_changes_since_last_save"]
        client.config_resetstat()
        done = work()
        sent = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        assert "scan" in sent
        assert sent <= READS
        after = sorted(client.keys()), client.info("persistence")["rdb_changes_since_last_save"]
        assert after == before
        return done

    def open_store(prefix: str = "") -> Store:
        return RespStore(f"127.0.0.1:{port}", prefix, {})

    return Live(open_store, client.set, watch)


def live_bucket(port: int, stack: ExitStack) -> Live:
    from kvseal.audit.stores.s3 import BucketStore

    through, methods = stack.enter_context(proxy(port))

    def put(name: str, data: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("PUT", f"/{BUCKET}/{quote(name)}", data)
        assert connection.getresponse().status == http.client.OK
        connection.close()

    def watch(work: Callable[[], Any]) -> Any:
        methods.clear()
        done = work()
        assert set(methods) == {"GET"}
        return done

    return Live(lambda: BucketStore(f"http://127.0.0.1:{through}", BUCKET, SECRETS), put, watch)


def objects(variant: str, *, salted: bool) -> list[list[Any]]:
    salt = SALT if salted else ""
    transformed = decorate(MODEL, variant)
    return [
        [digits(0), MODEL, RANK, 0, "", SIZE],
        [digits(1), MODEL, RANK, 0, salt, SIZE],
        [digits(2), f"{MODEL}##query", RANK, 11, salt, SIZE],
        [digits(3), transformed, RANK, 0, salt, SIZE],
        [digits(4), transformed, RANK, 0, salt, SIZE],
    ]


@pytest.fixture(scope="module")
def stores(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Live]]:
    """All stores, written by one process with LMCache; what can't run here is left out."""
    pytest.importorskip(
        "lmcache.v1.transform_identity", reason="needs an edited LMCache: engine environment"
    )
    root = tmp_path_factory.mktemp("stores")
    live: dict[str, Live] = {}
    asked: list[Any] = []
    with ExitStack() as stack:
        for kind in ("fs", "fs_native"):
            (root / kind).mkdir()
            live[kind] = live_folder(root / kind)
            config = {"type": kind, "base_path": str(root / kind)}
            # LMCache 0.5.4's fs_native refuses every key with a salt.
            asked.append([config, objects(variant, salted=kind == "fs")])
        server = shutil.which("redis-server") or shutil.which("valkey-server")
        if server is not None:
            port = free_port()
            command = (server, "--port", f"{port}", "--bind", "127.0.0.1", "--save", "")
            stack.enter_context(started(*command, port=port, cwd=root))
            live["resp"] = live_redis(port)
            config = {"type": "resp", "host": "127.0.0.1", "port": port, "num_workers": 1}
            asked.append([config, objects(variant, salted=True)])
        packages = os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "")
        if any((Path(folder) / "moto").is_dir() for folder in packages.split(os.pathsep)):
            port = free_port()
            command = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", f"{port}")
            environment = {**os.environ, "PYTHONPATH": packages}
            stack.enter_context(started(*command, port=port, env=environment))
            live["s3"] = live_bucket(port, stack)
            live["s3"].put("", b"")  # makes the bucket
            through, _ = stack.enter_context(proxy(port, f"/{BUCKET}"))
            config = {
                "type": "s3", "s3_endpoint": f"127.0.0.1:{through}", "s3_region": "us-east-1",
                "disable_tls": True, "s3_prefer_http2": False, "s3_num_io_threads": 1,
                "aws_access_key_id": "access", "aws_secret_access_key": "secret",
            }  # fmt: skip
            asked.append([config, objects(variant, salted=True)])
        done = subprocess.run([sys.executable, str(WRITER)], input=json.dumps(asked), text=True,
                              capture_output=True, timeout=240, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield live


@pytest.fixture(params=["fs", "fs_native", "resp", "s3"])
def live(request: pytest.FixtureRequest, stores: dict[str, Live]) -> Live:
    if request.param not in stores:
        pytest.skip(f"{request.param}: no redis-server, or no moto in KVSEAL_TEST_BACKEND_PACKAGES")
    return stores[request.param]


@pytest.fixture
def run_server() -> Any:
    """Start a server for the length of a `with` block."""
    return started
