# SPDX-License-Identifier: Apache-2.0
"""Servers of a test on loopback, and a proxy that sees what is asked of one. Loaded by conftest."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
