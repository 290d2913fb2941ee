# SPDX-License-Identifier: Apache-2.0
"""The variant index that a server keeps: what is listed, what is refused, what survives."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvseal.codemods.added import transform_index_store
from kvseal.codemods.added.transform_index_store import (
    FolderEntries,
    MemoryEntries,
    RefusedError,
)
from kvseal.identity import TransformManifest
from kvseal.identity import recipe as outside
from kvseal.identity.manifest import MAX_BYTES, RECIPE_FIELDS, RECIPE_SCHEMA, SCHEMA
from kvseal.identity.scope import LETTERS

VECTORS = Path(__file__).parents[3] / "vectors" / "transform-manifest"
SALT, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"tenant", b"another"))


def document(name: str = "query-scoped") -> dict[str, Any]:
    text = (VECTORS / f"{name}.json").read_text(encoding="utf-8")
    manifest: dict[str, Any] = json.loads(text)["manifest"]
    return manifest


def manifest(name: str = "query-scoped", **changes: Any) -> TransformManifest:
    return TransformManifest.from_json({**document(name), **changes})


def numbered(count: int) -> list[TransformManifest]:
    """Results of one recipe."""
    return [manifest(payload_sha256=f"{number:064x}") for number in range(count)]


def arguments(one: TransformManifest, salt: str = SALT) -> tuple[str, str, str, bytes]:
    return salt, one.recipe_digest, one.digest, one.canonical_bytes


@pytest.fixture(params=["folder", "memory"])
def entries(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryEntries | FolderEntries:
    return MemoryEntries() if request.param == "memory" else FolderEntries(tmp_path / "index")


@pytest.fixture
def index(transform_index: Any, entries: MemoryEntries | FolderEntries) -> Any:
    return transform_index.Index(entries)


@pytest.fixture
def folder_index(transform_index: Any, tmp_path: Path) -> Any:
    return transform_index.Index(FolderEntries(tmp_path / "index"))


def refusal(call: Callable[..., Any], *given: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        call(*given)
    return caught.value.status, str(caught.value)


def test_it_holds_the_same_rules_as_kvseal(transform_index: Any) -> None:
    assert transform_index.SCHEMA == outside.SCHEMA
    assert transform_index.MAX_ENTRIES == outside.MAX_ENTRIES
    assert transform_index.MANIFEST_SCHEMA == SCHEMA
    assert transform_index.RECIPE_SCHEMA == RECIPE_SCHEMA
    assert transform_index.RECIPE_FIELDS == RECIPE_FIELDS
    assert transform_index.LETTERS == LETTERS
    assert transform_index_store.MAX_ENTRY_BYTES == MAX_BYTES


def test_what_is_published_is_found_as_kvseal_reads_it(index: Any) -> None:
    one, two = manifest(), manifest("payload")
    assert one.recipe_digest == two.recipe_digest
    assert index.publish(*arguments(one)) == {"entries": 1, "manifest_sha256": one.digest}
    assert index.publish(*arguments(two))["entries"] == 2
    assert index.publish(*arguments(one))["entries"] == 2, "again changes nothing"
    data = index.find(SALT, one.recipe_digest)
    both = sorted((one, two), key=lambda item: item.digest)
    assert data == outside.encode(outside.VariantRecord(one.recipe_digest, tuple(both)))
    assert outside.candidates(data, one.recipe_digest) == both


def test_an_unknown_recipe_has_no_variants(index: Any) -> None:
    assert outside.candidates(index.find(SALT, "ab" * 32), "ab" * 32) == []


def test_a_tenant_sees_and_removes_its_own_entries_only(index: Any) -> None:
    one = manifest()
    index.publish(*arguments(one))
    assert one.digest.encode() not in index.find(OTHER, one.recipe_digest)
    assert index.remove(OTHER, one.recipe_digest, one.digest) == {"deleted": 0}
    assert index.remove(SALT, one.recipe_digest, one.digest) == {"deleted": 1}
    assert index.remove(SALT, one.recipe_digest, one.digest) == {"deleted": 0}
    assert outside.candidates(index.find(SALT, one.recipe_digest), one.recipe_digest) == []


def test_every_manifest_that_may_be_listed_is_taken(transform_index: Any, index: Any) -> None:
    spoken = document("unicode")
    spoken["scope"] = {"kind": "query-scoped", "binding": spoken["query"]["digest"]}
    others = ("query-scoped", "payload", "chained", "prefix", "global")
    for one in (TransformManifest.from_json(spoken), *map(manifest, others)):
        index.publish(*arguments(one))
        assert one.canonical_bytes in index.find(SALT, one.recipe_digest)


def test_request_local_manifests_are_refused(index: Any) -> None:
    for name in ("request-local", "legacy", "explicit"):
        status, text = refusal(index.publish, *arguments(manifest(name)))
        assert (status, "request-local" in text) == (400, True)


def test_scopes_that_the_server_does_not_take_are_refused(
    transform_index: Any, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_index, "allowed_scopes", lambda: "rq")
    index.publish(*arguments(manifest()))
    for name in ("prefix", "global"):
        status, text = refusal(index.publish, *arguments(manifest(name)))
        assert status == 403
        assert "'rq'" in text
        assert name in text


def named(body: bytes, recipe: str) -> tuple[str, str, str, bytes]:
    return SALT, recipe, hashlib.sha256(body).hexdigest(), body


def test_a_body_that_is_no_such_manifest_is_refused(index: Any) -> None:
    one = manifest()
    recipe, whole = one.recipe_digest, document()
    other = copy.deepcopy(whole)
    other["parameters"]["drop_percent"] = 25
    canonical = TransformManifest.from_json(other).canonical_bytes
    for body, word in (
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 4000, "no JSON"),
        (b"[]", "RFC 8785"),
        (b"{}", "RFC 8785"),
        (json.dumps(whole).encode(), "RFC 8785"),
        (one.canonical_bytes[:-1] + b',"schema":"kvseal.transform-manifest.v1"}', "RFC 8785"),
        (one.canonical_bytes.replace(b"manifest.v1", b"manifest.v2"), "RFC 8785"),
        (one.canonical_bytes.replace(b'"query-scoped"', b'"galactic"'), "scope.kind"),
        (one.canonical_bytes.replace(b'"query-scoped"', b'["q"]'), "scope.kind"),
        (canonical, f"not {recipe}"),
    ):
        status, text = refusal(index.publish, *named(body, recipe))
        assert (status, word in text) == (400, True), (body[:60], text)
    assert outside.candidates(index.find(SALT, recipe), recipe) == []


def test_sizes_and_digests_are_checked(index: Any) -> None:
    one = manifest()
    salt, recipe, digest, body = arguments(one)
    long = b" " * (MAX_BYTES + 1)
    assert refusal(index.publish, *named(long, recipe))[0] == 413
    assert refusal(index.publish, salt, recipe, "ab" * 32, body)[0] == 400
    for wrong in ("", "ab", digest.upper(), digest + "0", "../" * 21 + "x", digest + "\n"):
        for call, given in (
            (index.publish, (wrong, recipe, digest, body)),
            (index.publish, (salt, wrong, digest, body)),
            (index.publish, (salt, recipe, wrong, body)),
            (index.find, (wrong, recipe)),
            (index.find, (salt, wrong)),
            (index.remove, (wrong, recipe, digest)),
            (index.remove, (salt, wrong, digest)),
            (index.remove, (salt, recipe, wrong)),
        ):
            status, text = refusal(call, *given)
            assert (status, "64 lowercase hex digits" in text) == (400, True)


def test_a_recipe_has_a_bounded_number_of_variants(index: Any) -> None:
    made = numbered(outside.MAX_ENTRIES + 1)
    for one in made[:-1]:
        index.publish(*arguments(one))
    status, text = refusal(index.publish, *arguments(made[-1]))
    assert (status, "delete one" in text) == (409, True)
    assert index.publish(*arguments(made[0]))["entries"] == len(made) - 1, "it is there already"
    found = outside.candidates(index.find(SALT, made[0].recipe_digest), made[0].recipe_digest)
    assert {one.digest for one in found} == {one.digest for one in made[:-1]}
    assert index.publish(*arguments(made[-1], OTHER))["entries"] == 1, "another tenant's own"
    index.remove(SALT, made[0].recipe_digest, made[0].digest)
    assert index.publish(*arguments(made[-1]))["entries"] == len(made) - 1


def test_all_entries_together_are_bounded(
    transform_index: Any, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_index, "MAX_TOTAL", 3)
    made = numbered(4)
    for one, salt in zip(made[:3], (SALT, OTHER, SALT), strict=True):
        index.publish(*arguments(one, salt))
    for again in (index, transform_index.Index(index._entries)):
        status, text = refusal(again.publish, *arguments(made[3]))
        assert (status, "3 entries" in text) == (409, True)
    index.remove(OTHER, made[1].recipe_digest, made[1].digest)
    index.publish(*arguments(made[3]))
    assert refusal(index.publish, *arguments(made[1]))[0] == 409


def test_the_layout_is_the_documented_one(folder_index: Any, tmp_path: Path) -> None:
    one = manifest()
    folder_index.publish(*arguments(one))
    files = {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()}
    name = Path("index", SALT, one.recipe_digest, f"{one.digest}.json")
    assert files == {name, Path("index/.lock")}
    assert (tmp_path / name).read_bytes() == one.canonical_bytes
    folder_index.remove(*arguments(one)[:3])
    assert [p.name for p in (tmp_path / "index").iterdir()] == [".lock"], "empty folders go too"


def entry_file(tmp_path: Path, one: TransformManifest) -> Path:
    return tmp_path / "index" / SALT / one.recipe_digest / f"{one.digest}.json"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data + b" ",
        lambda data: data + b" " * 100000,
        lambda data: data.replace(b"50", b"51", 1),
        lambda data: b'{"schema":"forged"}',
        lambda data: manifest("payload").canonical_bytes,
    ],
)
def test_a_damaged_or_exchanged_entry_is_an_error(
    folder_index: Any, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    one, two = manifest(), manifest(payload_sha256="cd" * 32)
    folder_index.publish(*arguments(one))
    folder_index.publish(*arguments(two))
    file = entry_file(tmp_path, one)
    file.write_bytes(damage(file.read_bytes()))
    status, text = refusal(folder_index.find, SALT, one.recipe_digest)
    assert (status, "damaged" in text, one.digest in text) == (500, True, True)
    # It can be taken away, or mended by whoever has the manifest.
    folder_index.publish(*arguments(one))
    assert one.canonical_bytes in folder_index.find(SALT, one.recipe_digest)
    file.write_bytes(damage(file.read_bytes()))
    assert folder_index.remove(*arguments(one)[:3]) == {"deleted": 1}
    assert two.canonical_bytes in folder_index.find(SALT, one.recipe_digest)


def test_a_foreign_file_is_an_error_and_a_hidden_one_is_not(
    folder_index: Any, tmp_path: Path
) -> None:
    one = manifest()
    folder_index.publish(*arguments(one))
    folder = entry_file(tmp_path, one).parent
    (folder / ".nfs0001").write_bytes(b"x")
    assert one.canonical_bytes in folder_index.find(SALT, one.recipe_digest)
    for name in ("notes.txt", f"{one.digest}.json.bak", f"{one.digest.upper()}.json"):
        (folder / name).write_bytes(b"x")
        status, text = refusal(folder_index.find, SALT, one.recipe_digest)
        assert (status, name in text) == (500, True)
        (folder / name).unlink()


def test_more_entries_than_there_may_be_are_an_error(folder_index: Any, tmp_path: Path) -> None:
    one = manifest()
    folder_index.publish(*arguments(one))
    folder = entry_file(tmp_path, one).parent
    for number in range(outside.MAX_ENTRIES):
        (folder / f"{number:064x}.json").write_bytes(b"x")
    status, text = refusal(folder_index.find, SALT, one.recipe_digest)
    assert (status, "65 entries" in text) == (500, True)


def test_a_file_is_read_past_the_longest_entry(folder_index: Any, tmp_path: Path) -> None:
    """So that what follows a whole entry is seen."""
    data = b"x" * MAX_BYTES
    digest = hashlib.sha256(data).hexdigest()
    folder = tmp_path / "index" / SALT / ("ab" * 32)
    folder.mkdir(parents=True)
    (folder / f"{digest}.json").write_bytes(data + b"y")
    assert refusal(folder_index.find, SALT, "ab" * 32)[0] == 500


def test_nothing_is_read_through_a_link(folder_index: Any, tmp_path: Path) -> None:
    one = manifest()
    folder_index.publish(*arguments(one))
    file, secret = entry_file(tmp_path, one), tmp_path / "secret"
    secret.write_bytes(one.canonical_bytes)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        folder_index.find(SALT, one.recipe_digest)
    file.unlink()
    os.mkfifo(file)
    status, text = refusal(folder_index.find, SALT, one.recipe_digest)
    assert (status, "no regular file" in text) == (500, True)
    file.unlink()
    file.mkdir()
    with pytest.raises((OSError, RefusedError)):
        folder_index.find(SALT, one.recipe_digest)


def test_a_folder_survives_its_server(transform_index: Any, tmp_path: Path) -> None:
    one = manifest()
    for publish in (True, False):
        index = transform_index.Index(FolderEntries(tmp_path / "index"))
        if publish:
            index.publish(*arguments(one))
        assert one.canonical_bytes in index.find(SALT, one.recipe_digest)


def test_a_write_that_fails_leaves_the_old_entry_whole(
    folder_index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = manifest(), manifest("payload")
    folder_index.publish(*arguments(one))

    def broken(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        for item in (one, two):
            with pytest.raises(OSError, match="disk full"):
                folder_index.publish(*arguments(item))
    found = outside.candidates(folder_index.find(SALT, one.recipe_digest), one.recipe_digest)
    assert found == [one]
    assert [p.name for p in entry_file(tmp_path, one).parent.iterdir()] == [f"{one.digest}.json"]


def test_what_a_dead_writer_left_is_no_entry_and_goes(folder_index: Any, tmp_path: Path) -> None:
    one, two = manifest(), manifest("payload")
    folder_index.publish(*arguments(one))
    left = entry_file(tmp_path, one).parent / ".0123456789abcdef.tmp"
    left.write_bytes(one.canonical_bytes[:100])
    assert one.canonical_bytes in folder_index.find(SALT, one.recipe_digest)
    folder_index.publish(*arguments(two))
    assert not left.exists()


def test_bytes_are_on_disk_before_their_name_is(
    folder_index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append("folder" if target.is_dir() else "file")
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        seen.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    folder_index.publish(*arguments(manifest()))
    assert seen == ["file", "name", "folder", "folder", "folder"]


WRITER = """
import sys, types
for name in ("lmcache", "lmcache.v1"):
    sys.modules[name] = types.ModuleType(name)
from kvseal.codemods.added import transform_index_store as store
sys.modules["lmcache.v1.transform_index_store"] = store
from kvseal.codemods.added import transform_index
import json, pathlib
folder, salt, recipe, bodies = sys.argv[1:]
index = transform_index.Index(store.FolderEntries(pathlib.Path(folder)))
listed = refused = 0
for digest, body in json.loads(pathlib.Path(bodies).read_text()):
    try:
        index.publish(salt, recipe, digest, body.encode())
        listed += 1
    except store.RefusedError as error:
        assert error.status == 409, error
        refused += 1
    index.find(salt, recipe)
print(listed, refused)
"""


def test_several_processes_write_at_once(transform_index: Any, tmp_path: Path) -> None:
    """Together they would list 90 variants, and 64 is the limit: none goes past it."""
    made = numbered(90)
    shares = [made[start::3] for start in range(3)]
    writers = []
    for number, share in enumerate(shares):
        bodies = tmp_path / f"{number}.json"
        bodies.write_text(json.dumps([(m.digest, m.canonical_bytes.decode()) for m in share]))
        command = [sys.executable, "-c", WRITER, str(tmp_path / "index"), SALT]
        command += [made[0].recipe_digest, str(bodies)]
        writers.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
    counts = []
    for writer in writers:
        out, error = writer.communicate(timeout=60)
        assert writer.returncode == 0, error
        counts.append([int(number) for number in out.split()])
    assert sum(listed for listed, _ in counts) == 64
    assert sum(refused for _, refused in counts) == 26
    index = transform_index.Index(FolderEntries(tmp_path / "index"))
    assert (
        len(outside.candidates(index.find(SALT, made[0].recipe_digest), made[0].recipe_digest))
        == 64
    )


def test_a_writer_that_holds_the_lock_too_long_is_named(
    folder_index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_index_store, "LOCK_SECONDS", 0.05)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with FolderEntries(tmp_path / "index").locked():
            held.set()
            let_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    try:
        one = manifest()
        status, text = refusal(folder_index.publish, *arguments(one))
        assert (status, "another writer" in text) == (503, True)
        assert one.digest.encode() not in folder_index.find(SALT, one.recipe_digest)
    finally:
        let_go.set()
        holder.join()
    folder_index.publish(*arguments(one))


def test_the_variable_names_a_folder_or_nothing(
    transform_index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = transform_index.Index.of_environment
    monkeypatch.delenv("LMCACHE_TRANSFORM_INDEX", raising=False)
    assert type(made()._entries) is MemoryEntries
    monkeypatch.setenv("LMCACHE_TRANSFORM_INDEX", str(tmp_path / "new" / "index"))
    made().publish(*arguments(manifest()))
    assert manifest().canonical_bytes in made().find(SALT, manifest().recipe_digest)
    (tmp_path / "file").write_bytes(b"")
    for wrong in ("index", "./index", str(tmp_path / "file")):
        monkeypatch.setenv("LMCACHE_TRANSFORM_INDEX", wrong)
        with pytest.raises(ValueError, match="LMCACHE_TRANSFORM_INDEX"):
            made()
