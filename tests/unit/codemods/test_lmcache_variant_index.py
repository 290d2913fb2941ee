# SPDX-License-Identifier: Apache-2.0
"""The variant index in real LMCache: its HTTP router, and the client that reads from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("requests", reason="requests lives in the engine environment")

import requests

from kvseal.canonical import sha256_hex
from kvseal.codemods import (
    lmcache_scope_enforcement,
    lmcache_transform_identity,
    lmcache_variant_index,
)
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.variant_index import VariantIndex
from kvseal.errors import EvidenceError, PrerequisiteError, StoreError
from kvseal.identity import Proof, TransformManifest, register_transform
from kvseal.identity import scope as scopes

if TYPE_CHECKING:
    from conftest import LMCacheCopy

BEFORE = (lmcache_transform_identity.CODEMOD, lmcache_scope_enforcement.CODEMOD)
CODEMOD = lmcache_variant_index.CODEMOD
VECTORS = Path(__file__).parents[2] / "vectors" / "transform-manifest"
FOLDER = "LMCACHE_TRANSFORM_INDEX"

# LMCache's HTTP modules, all that it finds in their folder or this one alone; no engine.
SERVER = """
import socket, sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
if sys.argv[1] == "all":
    from lmcache.v1.multiprocess.http_api_registry import HTTPAPIRegistry
    HTTPAPIRegistry(app).register_all_apis()
else:
    from lmcache.v1.multiprocess.http_apis import transform_index_api
    app.include_router(transform_index_api.router)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
"""


def manifest(name: str = "query-scoped", **changes: Any) -> TransformManifest:
    text = (VECTORS / f"{name}.json").read_text(encoding="utf-8")
    return TransformManifest.from_json({**json.loads(text)["manifest"], **changes})


@contextmanager
def serving(lmcache: LMCacheCopy, modules: str, **variables: str) -> Iterator[str]:
    """Serve LMCache's HTTP endpoints for the length of a block; the address is given."""
    assert lmcache.run("print(1)") == 1, "skips where no Python with torch is at hand"
    python = os.environ.get("KVSEAL_TEST_ENGINE_PYTHON", sys.executable)
    with subprocess.Popen(
        [python, "-c", SERVER, modules],
        env=lmcache.variables() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = next((line for line in process.stdout if line.strip().isdigit()), None)
            if port is None:
                assert process.stderr is not None
                raise AssertionError(process.stderr.read()[-4000:])
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            process.kill()


def test_it_adds_files_and_changes_none(alters_nothing_else: Callable[..., None]) -> None:
    assert CODEMOD.edited == ()
    alters_nothing_else(CODEMOD)
    alters_nothing_else(CODEMOD, *BEFORE)


def test_entries_are_listed_found_and_kept(
    lmcache: LMCacheCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "_PROOFS", {})
    lmcache.apply([*BEFORE, CODEMOD])
    folder = tmp_path / "index"
    one, two, wide = manifest(), manifest("payload"), manifest("prefix")
    algorithm = wide.algorithm
    proof = Proof("prefix", ("source", "parameters"), "tests/unit/codemods")
    register_transform(algorithm.name, algorithm.version, proof=proof)
    both = sorted((one, two), key=lambda item: item.digest)
    with serving(lmcache, "all", **{FOLDER: str(folder)}) as url:
        index = VariantIndex(LMCacheHTTP(url))
        assert index.find(one.recipe_digest, "salt") == []
        for item in (one, two, one):
            index.publish(item, "salt")
        assert index.find(one.recipe_digest, "salt") == both
        assert index.find(one.recipe_digest) == []
        with pytest.raises(StoreError, match="takes scopes 'rq'"):
            index.publish(wide)
        _refuses(url, one)
    # Another server, with the same folder and other scopes.
    with serving(lmcache, "one", LMCACHE_TRANSFORM_SCOPES="qp", **{FOLDER: str(folder)}) as url:
        index = VariantIndex(LMCacheHTTP(url))
        index.publish(wide)
        assert index.find(wide.recipe_digest) == [wide]
        assert index.remove(wide.recipe_digest, wide.digest)
        assert index.find(one.recipe_digest, "salt") == both, "they survive a restart"
        assert index.remove(two.recipe_digest, two.digest, "salt")
        assert index.find(one.recipe_digest, "salt") == [one]
        [file] = folder.glob("*/*/*.json")
        assert file == folder / sha256_hex(b"salt") / one.recipe_digest / f"{one.digest}.json"
        file.write_bytes(b'{"schema":"forged"}')
        with pytest.raises(EvidenceError, match="damaged"):
            index.find(one.recipe_digest, "salt")
        file.unlink()
        file.symlink_to("/etc/hostname")
        with pytest.raises(EvidenceError, match="symbolic"):
            index.find(one.recipe_digest, "salt")


def _refuses(url: str, one: TransformManifest) -> None:
    """What only somebody past the client can send."""
    salt = sha256_hex(b"salt")
    base = f"{url}/transform/index/{salt}"
    local = manifest("request-local")

    def put(recipe: str, digest: str, body: bytes) -> tuple[int, str]:
        answer = requests.put(f"{base}/{recipe}/{digest}", data=body, timeout=30)
        return answer.status_code, answer.json()["error"]

    body = one.canonical_bytes
    for (status, text), expected, word in (
        (put(local.recipe_digest, local.digest, local.canonical_bytes), 400, "request-local"),
        (put(one.recipe_digest, "ab" * 32, body), 400, "digest"),
        (put("ab" * 32, one.digest, body), 400, "recipe"),
        (put(one.recipe_digest, one.digest, b"x" * 50_000), 413, "4095"),
        (put("AB" * 32, one.digest, body), 400, "lowercase"),
    ):
        assert (status, word in text) == (expected, True), text
    with pytest.raises(PrerequisiteError, match="no variant index"):
        VariantIndex(LMCacheHTTP(f"{url}/elsewhere")).publish(one)
    for path in (f"{base}/xyz", f"{base}/..%2f..%2fetc", f"{base}/{'ab' * 33}"):
        assert requests.get(path, timeout=30).status_code in (400, 404)


def test_a_server_with_a_wrong_setting_does_not_start(lmcache: LMCacheCopy) -> None:
    lmcache.apply([*BEFORE, CODEMOD])
    with (
        pytest.raises(AssertionError, match="LMCACHE_TRANSFORM_INDEX='relative/folder'"),
        serving(lmcache, "one", **{FOLDER: "relative/folder"}),
    ):
        pass
