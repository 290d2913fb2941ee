# SPDX-License-Identifier: Apache-2.0
"""The variant index's client: what it takes from a server, and what it never takes.

The server here is the added module behind a few lines of HTTP; LMCache's own
router serves it in tests/unit/codemods/test_lmcache_variant_index.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("requests", reason="requests lives in the engine environment")

from kvseal.canonical import sha256_hex
from kvseal.codemods.added.transform_index_store import FolderEntries, RefusedError
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.variant_index import VariantIndex
from kvseal.errors import (
    EngineError,
    EvidenceError,
    OptionError,
    PrerequisiteError,
    StoreError,
    TransformError,
)
from kvseal.identity import TransformManifest
from kvseal.identity.recipe import VariantRecord, encode
from kvseal.identity.variant import variant_of

VECTORS = Path(__file__).parents[2] / "vectors" / "transform-manifest"


def manifest(name: str = "query-scoped", **changes: Any) -> TransformManifest:
    text = (VECTORS / f"{name}.json").read_text(encoding="utf-8")
    return TransformManifest.from_json({**json.loads(text)["manifest"], **changes})


class Served:
    """An index in a folder, and whatever a server may answer in its place."""

    def __init__(self, index: Any, folder: Path) -> None:
        self.index = index
        self.folder = folder
        self.instead: tuple[int, bytes] | None = None
        self.paths: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.paths.append(path)
        if self.instead is not None:
            return self.instead
        digests = path.removeprefix("/transform/index/").split("/")
        acts = {"PUT": self.index.publish, "GET": self.index.find, "DELETE": self.index.remove}
        try:
            result = acts[method](*digests, *([body] if method == "PUT" else []))
        except RefusedError as error:
            return error.status, json.dumps({"error": str(error)}).encode()
        return 200, result if isinstance(result, bytes) else json.dumps(result).encode()


@pytest.fixture
def served(transform_index: Any, tmp_path: Path) -> Served:
    folder = tmp_path / "index"
    return Served(transform_index.Index(FolderEntries(folder)), folder)


@pytest.fixture
def index(served: Served) -> Iterator[VariantIndex]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            status, body = served.answer(self.command, self.path, self.rfile.read(length))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_DELETE = do_GET  # noqa: N815  (BaseHTTPRequestHandler's names)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield VariantIndex(LMCacheHTTP(f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    server.server_close()


def test_what_is_published_is_found_and_removed(index: VariantIndex) -> None:
    one, two = manifest(), manifest("payload")
    assert index.find(one.recipe_digest) == []
    assert index.publish(one) == variant_of(one)
    index.publish(two)
    index.publish(one)
    assert index.find(one.recipe_digest) == sorted((one, two), key=lambda item: item.digest)
    assert index.remove(one.recipe_digest, one.digest) is True
    assert index.remove(one.recipe_digest, one.digest) is False
    assert index.find(one.recipe_digest) == [two]


def test_a_tenant_sees_its_own_only_and_no_salt_leaves(index: VariantIndex, served: Served) -> None:
    one = manifest()
    index.publish(one, "tenant-a")
    for other in ("", "tenant-b", "tenant-A", sha256_hex(b"tenant-a")):
        assert index.find(one.recipe_digest, other) == []
        assert index.remove(one.recipe_digest, one.digest, other) is False
    assert index.find(one.recipe_digest, "tenant-a") == [one]
    assert not any("tenant" in path for path in served.paths)
    assert sha256_hex(b"tenant-a") in served.paths[0]
    with pytest.raises(OptionError, match="##tv"):
        index.find(one.recipe_digest, "x##tv1-y")


def test_request_local_manifests_are_never_sent(index: VariantIndex, served: Served) -> None:
    for name in ("request-local", "legacy"):
        with pytest.raises(EvidenceError, match="never listed"):
            index.publish(manifest(name))
    with pytest.raises(TransformError, match="no proof"):
        index.publish(manifest("global"))
    assert not served.paths


def test_what_the_server_refuses_is_an_error(index: VariantIndex, served: Served) -> None:
    served.index.publish = lambda *_: (_ for _ in ()).throw(RefusedError(403, "not this scope"))
    with pytest.raises(StoreError, match="not this scope"):
        index.publish(manifest())
    for instead in ((500, b'{"error":"disk full"}'), (503, b"<html>busy")):
        served.instead = instead
        with pytest.raises(EngineError, match=r"disk full|busy"):
            index.publish(manifest())
        with pytest.raises(EngineError, match=r"disk full|busy"):
            index.remove("ab" * 32, "cd" * 32)
    served.instead = (200, b"{}")
    with pytest.raises(EngineError, match="says nothing"):
        index.remove("ab" * 32, "cd" * 32)


def test_a_server_without_an_index_is_named(index: VariantIndex, served: Served) -> None:
    for status in (404, 405):
        served.instead = (status, b'{"detail":"Not Found"}')
        for call in (
            lambda: index.publish(manifest()),
            lambda: index.find("ab" * 32),
            lambda: index.remove("ab" * 32, "cd" * 32),
        ):
            with pytest.raises(PrerequisiteError, match="lmcache_variant_index"):
                call()


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(EngineError, match="does not answer"):
        VariantIndex(LMCacheHTTP("http://127.0.0.1:1")).find("ab" * 32)


@pytest.mark.parametrize(
    "forge",
    [
        lambda data: data.replace(b"50", b"51", 1),
        lambda data: data[:-1],
        lambda data: b'{"schema":"forged"}',
        lambda data: manifest("payload").canonical_bytes,
    ],
)
def test_an_entry_that_was_tampered_with_is_an_error(
    index: VariantIndex, served: Served, forge: Any
) -> None:
    one = manifest()
    index.publish(one, "t")
    index.publish(manifest(payload_sha256="cd" * 32), "t")
    file = served.folder / sha256_hex(b"t") / one.recipe_digest / f"{one.digest}.json"
    file.write_bytes(forge(file.read_bytes()))
    with pytest.raises(EvidenceError, match="damaged"):
        index.find(one.recipe_digest, "t")
    index.remove(one.recipe_digest, one.digest, "t")
    assert len(index.find(one.recipe_digest, "t")) == 1


def test_an_entry_of_another_recipe_under_its_own_digest_is_an_error(
    index: VariantIndex, served: Served
) -> None:
    """The file is what its name says: only whoever reads the manifest can see it."""
    one, foreign = manifest(), manifest("chained")
    index.publish(one)
    folder = served.folder / sha256_hex(b"") / one.recipe_digest
    (folder / f"{foreign.digest}.json").write_bytes(foreign.canonical_bytes)
    with pytest.raises(EvidenceError, match="another recipe"):
        index.find(one.recipe_digest)


def test_a_smuggled_request_local_entry_is_an_error(index: VariantIndex, served: Served) -> None:
    local = manifest("request-local")
    folder = served.folder / sha256_hex(b"") / local.recipe_digest
    folder.mkdir(parents=True)
    (folder / f"{local.digest}.json").write_bytes(local.canonical_bytes)
    with pytest.raises(EvidenceError, match="never listed"):
        index.find(local.recipe_digest)


def test_a_server_that_lies_is_not_believed(index: VariantIndex, served: Served) -> None:
    one, other = manifest(), manifest("chained")
    honest = encode(VariantRecord(one.recipe_digest, (one,)))
    for lie in (
        b"",
        b"[]",
        b"{}",
        honest.replace(one.digest.encode(), other.digest.encode()),
        honest.replace(b'"kvseal.variant-index.v1"', b'"kvseal.variant-index.v2"'),
        encode(VariantRecord(other.recipe_digest, (other,))),
        json.dumps(json.loads(honest), indent=1).encode(),
        honest[:-2] + b',"hit":true]}',
    ):
        served.instead = (200, lie)
        with pytest.raises(EvidenceError):
            index.find(one.recipe_digest)
    served.instead = (200, honest)
    assert index.find(one.recipe_digest) == [one]


def test_digests_that_are_none_are_refused_here(index: VariantIndex, served: Served) -> None:
    for wrong in ("", "ab", "AB" * 32, "../" * 21 + "x"):
        for call in (
            lambda wrong=wrong: index.find(wrong),
            lambda wrong=wrong: index.remove(wrong, "ab" * 32),
            lambda wrong=wrong: index.remove("ab" * 32, wrong),
        ):
            with pytest.raises(EvidenceError, match="digest"):
                call()
    assert not served.paths
