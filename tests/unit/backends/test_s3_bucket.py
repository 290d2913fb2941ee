# SPDX-License-Identifier: Apache-2.0
"""A bucket is named by the host alone, and its listing is added up over pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from kvseal.backends import s3_bucket

PAGES = {
    "": (["10", "20"], "next page+1"),
    "next page+1": (["5"], ""),
}


class Listing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        sizes, token = PAGES[query.get("continuation-token", [""])[0]]
        contents = "".join(f"<Contents><Size>{size}</Size></Contents>" for size in sizes)
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        body = f'<ListBucketResult xmlns="urn:s3">{contents}{more}</ListBucketResult>'.encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listing() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Listing)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_sizes_are_added_over_all_pages() -> None:
    with listing() as port:
        assert s3_bucket.listed_bytes(port) == 35


def test_a_server_that_refuses_the_request_is_there() -> None:
    with listing() as port:
        assert s3_bucket.answers(port)
    with pytest.raises(OSError, match="refused"):
        s3_bucket.answers(port)


def test_the_adapter_has_no_path_and_keeps_to_loopback() -> None:
    adapter = s3_bucket.adapter(5000)
    assert adapter["s3_endpoint"] == "127.0.0.1:5000"
    assert adapter["disable_tls"] is True
