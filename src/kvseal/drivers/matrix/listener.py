# SPDX-License-Identifier: Apache-2.0
"""Stands in for a coordinator, to hear what an LMCache server tells it of its entries.

The real one is no better witness: it binds tokens to chunk hashes itself, so
afterwards nobody knows who told it. Listens on loopback, answers as a
coordinator would, keeps every event.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FLUSH_SECONDS = 0.1
ANSWER = {"instance_id": "matrix", "re_registered": False}
"""What a coordinator says to a server that registers; to anything else it will do."""


class Listener:
    """A context manager; `entries` is what was heard of stores so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: list[dict[str, Any]] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            """Takes what is posted."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path.endswith("/events"):
                    listener.heard(body)
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def do_PUT(self) -> None:
                self.answer()

            def do_DELETE(self) -> None:
                self.answer()

            def answer(self) -> None:
                """Say yes."""
                data = json.dumps(ANSWER).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What makes an LMCache server tell this listener."""
        return (
            *("--coordinator-url", f"http://127.0.0.1:{self._server.server_address[1]}"),
            *("--coordinator-advertise-ip", "127.0.0.1"),
            "--coordinator-event-reporting",
            *("--coordinator-event-flush-interval", str(FLUSH_SECONDS)),
        )

    def heard(self, body: bytes) -> None:
        """Keep the batches of one report."""
        batches = json.loads(body).get("batches", [])
        with self._lock:
            self._batches += batches

    def entries(self, cache_salt: str) -> list[dict[str, Any]]:
        """Return the stored entries of one tenant that were told of."""
        with self._lock:
            batches = list(self._batches)
        return [
            entry
            for batch in batches
            if batch.get("event_type") == "store"
            for entry in batch.get("entries", [])
            if entry["key"].get("cache_salt") == cache_salt
        ]

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
