# SPDX-License-Identifier: Apache-2.0
"""The S3 reader against a server that answers as S3 does, well and badly; GET alone, no secret."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kvseal.audit.stores import s3
from kvseal.audit.stores.s3 import BucketStore
from kvseal.errors import OptionError, PrerequisiteError, StoreError

SECRETS = {"AWS_ACCESS_KEY_ID": "ACCESS", "AWS_SECRET_ACCESS_KEY": "SECRET"}
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def page(*names: str, token: str = "", quoted: bool = True, size: str = "7") -> str:
    items = "".join(f"<Contents><Key>{name}</Key><Size>{size}</Size></Contents>" for name in names)
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    encoding = "<EncodingType>url</EncodingType>" if quoted else ""
    truncated = "true" if token else "false"
    return (
        f'<?xml version="1.0"?><ListBucketResult xmlns="{NAMESPACE}">{encoding}{items}'
        f"<IsTruncated>{truncated}</IsTruncated>{following}</ListBucketResult>"
    )


class Server:
    """What is asked of it, and what it answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.answer: Callable[[str, dict[str, list[str]]], tuple[int, str]] = lambda *_: (200, "")
        self.port = 0
        self.part = ""

    def store(self, **environment: str) -> BucketStore:
        return BucketStore(f"http://127.0.0.1:{self.port}", "kv-0", {**SECRETS, **environment})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on loopback; requests are not signed where awscrt is missing."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.requests.append(("GET", self.path, headers))
            status, text = state.answer(url.path, parse_qs(url.query))
            data = text.encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if state.part:
                self.send_header("Content-Range", state.part)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    state.port = listening.server_port
    try:
        import awscrt  # noqa: F401
    except ImportError:

        class Unsigned:
            def __init__(self, *_: Any) -> None:
                pass

            def headers(self, host: str, path: str) -> dict[str, str]:
                return {"host": host}

        monkeypatch.setattr(s3, "_Signer", Unsigned)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield state
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_all_pages_are_read_and_names_unquoted(server: Server) -> None:
    pages = {
        None: page("a%2Fb%400%40x+y%2Bz", token="t=/+"),
        "t=/+": page("%F0%9F%98%80%23%23tv", "%FF"),
    }
    server.answer = lambda path, query: (200, pages[query.get("continuation-token", [None])[0]])
    found = list(server.store())
    assert [item.name for item in found] == ["a/b@0@x y+z", "\U0001f600##tv", "\udcff"]
    assert {item.size_bytes for item in found} == {7}
    assert [method for method, _, _ in server.requests] == ["GET", "GET"]
    assert all(path.startswith("/kv-0?") for _, path, _ in server.requests)


def test_names_that_the_server_did_not_quote_stay(server: Server) -> None:
    server.answer = lambda path, query: (200, page("a%40+b", quoted=False))
    assert [item.name for item in server.store()] == ["a%40+b"]


def test_a_request_is_signed_for_the_region_and_tells_no_secret(server: Server) -> None:
    pytest.importorskip("awscrt", reason="awscrt: engine environment")
    server.answer = lambda path, query: (200, page("x"))
    list(server.store(AWS_REGION="eu-central-1", AWS_SESSION_TOKEN="TOKEN"))
    _, _, headers = server.requests[0]
    assert "Credential=ACCESS/" in headers["authorization"]
    assert "/eu-central-1/s3/aws4_request" in headers["authorization"]
    assert headers["x-amz-security-token"] == "TOKEN"
    assert "SECRET" not in f"{server.requests}"


@pytest.mark.parametrize(
    "path",
    [
        "/kv-0?encoding-type=url&list-type=2",
        "/kv-0?continuation-token=t%3D%2F%2B%20&encoding-type=url&list-type=2",
        "/kv-0/a/b%40%23%20%2B%C3%A9",
    ],
)
def test_a_signature_is_the_one_that_botocore_makes(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("awscrt", reason="awscrt: engine environment")
    folders = os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "").split(os.pathsep)
    monkeypatch.setattr(sys, "path", [*sys.path, *filter(None, folders)])
    auth = pytest.importorskip("botocore.auth", reason="moto's: KVSEAL_TEST_BACKEND_PACKAGES")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    secrets = ("ACCESS", "SECRET", "TOKEN")
    ours = s3._Signer(secrets, "eu-central-1").headers("h:9000", path)
    made_at = datetime.strptime(ours["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_, **__: made_at)
    request = AWSRequest("GET", f"http://h:9000{path}", headers={"host": "h:9000"})
    auth.S3SigV4Auth(Credentials(*secrets), "s3", "eu-central-1").add_auth(request)
    assert ours["Authorization"] == request.headers["Authorization"]


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (403, "<Error><Code>AccessDenied</Code><Key>ACCESS</Key></Error>", "403, AccessDenied"),
        (301, "<Error><Code>PermanentRedirect</Code></Error>", "301, PermanentRedirect"),
        (500, "", "500, no reason given"),
        (200, "<html/>", "no listing"),
        (200, "<ListBucketResult", "no listing"),
        (200, '<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult/>', "no listing"),
        (200, page("x").replace("false", "true"), "not where"),
    ],
)
def test_a_bad_answer_ends_the_reading(server: Server, status: int, text: str, said: str) -> None:
    server.answer = lambda path, query: (status, text)
    with pytest.raises(StoreError, match=said) as caught:
        list(server.store())
    assert "ACCESS" not in str(caught.value)


def test_a_listing_that_turns_in_circles_ends(server: Server) -> None:
    server.answer = lambda path, query: (200, page("x", token="again"))
    with pytest.raises(StoreError, match="not where"):
        list(server.store())
    assert len(server.requests) == 2


def test_parts_of_objects_are_read(server: Server) -> None:
    def answer(path: str, query: dict[str, list[str]]) -> tuple[int, str]:
        if query:
            return 200, page("a%2Fb%40%23", "gone", "short", "whole")
        parts = {
            "/kv-0/a/b%40%23": (206, "bytes"),
            "/kv-0/gone": (404, ""),
            "/kv-0/short": (416, ""),
        }
        return parts.get(path, (200, "all"))

    server.answer = answer
    store = server.store()
    items = iter(store)
    first = next(items)
    server.part = "bytes 10-14/99"
    assert store.read(first, 10, 5) == b"bytes"
    assert server.requests[-1][2]["range"] == "bytes=10-14"
    with pytest.raises(StoreError, match="status 206 for a part"):
        store.read(first, 11, 5)
    assert store.read(next(items), 0, 5) == b""
    assert store.read(next(items), 0, 5) == b""
    whole = next(items)
    assert store.read(whole, 10, 5) == b"all"  # as rclone answers
    server.part = ""
    with pytest.raises(StoreError, match="status 200 for a part"):
        store.read(whole, 10, 5)


def test_no_server_is_an_error_of_the_source(server: Server) -> None:
    server.port = 1
    with pytest.raises(StoreError, match="can't be read"):
        list(server.store())


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h/?a=b",
        "http://h:x",
        "http://[",
    ],
)
def test_no_endpoint(endpoint: str) -> None:
    with pytest.raises(OptionError) as caught:
        BucketStore(endpoint, "kv-0", SECRETS)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("bucket", ["", "a", "A-bucket", "a/b", "-ab", "x" * 64])
def test_no_bucket(bucket: str) -> None:
    with pytest.raises(OptionError):
        BucketStore("http://h", bucket, SECRETS)


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_no_credentials(missing: str) -> None:
    with pytest.raises(PrerequisiteError, match="no credentials"):
        BucketStore("http://h", "kv-0", {**SECRETS, missing: ""})


def test_the_name_holds_no_credentials() -> None:
    assert BucketStore("https://h:9000/base/", "kv-0", SECRETS).name == "https://h:9000/base/kv-0"
