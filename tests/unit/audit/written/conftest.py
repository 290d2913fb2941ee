# SPDX-License-Identifier: Apache-2.0
"""Stores that LMCache's own adapters wrote, each with a watch on what is asked of it.

redis-server is started on loopback, and moto and rclone for S3 where
KVSEAL_TEST_BACKEND_PACKAGES names a folder that has them; rclone checks
signatures. The same folder brings the client of the valkey adapter.
"""

from __future__ import annotations

import http.client
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from kvseal.audit.key_text import KeyText, write_fs, write_native
from kvseal.audit.stores import Store
from kvseal.identity.variant import decorate
from kvseal.process import free_port

WRITER = Path(__file__).with_name("writer.py")
servers = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("servers.py"))))
started, proxy = servers.started, servers.proxy
MODEL, BUCKET, RANK, SIZE = "org/model-1", "kv-0", 0x01000100, 8192
SALT = "tenant ü+a"
SECRETS = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret"}
PACKAGES = os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "")
REDIS = shutil.which("redis-server") or shutil.which("valkey-server")
RCLONE_BUCKET = "127"
"""rclone takes the first label of the host name for a bucket, which is this for 127.0.0.1."""
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


def watched_folder(folder: Path) -> Callable[[Callable[[], Any]], Any]:
    def state() -> dict[str, Any]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.read_bytes())
            for path in folder.rglob("*")
            if path.is_file()
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


def live_redis(port: int, prefix: str = "") -> Live:
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

    def open_store(prefix: str = prefix) -> Store:
        return RespStore(f"127.0.0.1:{port}", prefix, {})

    def put(name: str, data: bytes) -> None:
        client.set(f"{prefix}@{name}" if prefix else name, data)

    return Live(open_store, put, watch)


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


def live_rclone(port: int, folder: Path) -> Live:
    from kvseal.audit.stores.s3 import BucketStore

    def put(name: str, data: bytes) -> None:
        path = folder / RCLONE_BUCKET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def open_store() -> Store:
        return BucketStore(f"http://127.0.0.1:{port}", RCLONE_BUCKET, SECRETS)

    return Live(open_store, put, watched_folder(folder))


def package(name: str) -> Path | None:
    """Return where a package of the folders for backends is, or a program of theirs."""
    folders = (Path(folder) for folder in PACKAGES.split(os.pathsep) if folder)
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def s3_config(port: int) -> dict[str, Any]:
    return {
        "type": "s3", "s3_endpoint": f"127.0.0.1:{port}", "s3_region": "us-east-1",
        "disable_tls": True, "s3_prefer_http2": False, "s3_num_io_threads": 1,
        "aws_access_key_id": "access", "aws_secret_access_key": "secret",
    }  # fmt: skip


def with_packages() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), PACKAGES]))
    return {**os.environ, "PYTHONPATH": path}


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
        for kind in ("resp", "valkey") if REDIS else ():
            if kind == "valkey" and package("glide_sync") is None:
                continue
            port = free_port()
            command = (REDIS, "--port", f"{port}", "--bind", "127.0.0.1", "--save", "")
            stack.enter_context(started(*command, port=port, cwd=root))
            live[kind] = live_redis(port, "prod" if kind == "valkey" else "")
            config = {
                "resp": {"host": "127.0.0.1", "port": port, "num_workers": 1},
                "valkey": {"startup_nodes": f"127.0.0.1:{port}", "key_prefix": "prod"},
            }[kind]
            asked.append([{"type": kind, **config}, objects(variant, salted=True)])
        if package("moto") is not None:
            port = free_port()
            command = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", f"{port}")
            environment = {**os.environ, "PYTHONPATH": PACKAGES}
            stack.enter_context(started(*command, port=port, env=environment))
            live["s3"] = live_bucket(port, stack)
            live["s3"].put("", b"")  # makes the bucket
            through, _ = stack.enter_context(proxy(port, f"/{BUCKET}"))
            asked.append([s3_config(through), objects(variant, salted=True)])
        rclone = package("bin/rclone")
        if rclone is not None:
            (root / "rclone" / RCLONE_BUCKET).mkdir(parents=True)
            ports = [free_port(), free_port()]
            for port, style in zip(ports, ("false", "true"), strict=True):
                command = (
                    *(str(rclone), "serve", "s3", str(root / "rclone"), "--config", ""),
                    *("--addr", f"127.0.0.1:{port}", "--auth-key", ",".join(SECRETS.values())),
                    *(f"--force-path-style={style}", "--no-cleanup", "--dir-cache-time", "0"),
                )
                stack.enter_context(started(*command, port=port))
            live["s3_rclone"] = live_rclone(ports[1], root / "rclone")
            asked.append([s3_config(ports[0]), objects(variant, salted=True)])
        done = subprocess.run(
            [sys.executable, str(WRITER)],
            input=json.dumps(asked),
            env=with_packages(),
            text=True,
            capture_output=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield live


@pytest.fixture(params=["fs", "fs_native", "resp", "valkey", "s3", "s3_rclone"])
def live(request: pytest.FixtureRequest, stores: dict[str, Live]) -> Live:
    if request.param not in stores:
        pytest.skip(
            f"{request.param}: no server or client, here or in KVSEAL_TEST_BACKEND_PACKAGES"
        )
    return stores[request.param]


@pytest.fixture
def run_server() -> Any:
    """Start a server for the length of a `with` block."""
    return started
