# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent, on real and on full disks."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvseal
from kvseal import store
from kvseal.errors import EvidenceError, PrerequisiteError

SOURCE = Path(kvseal.__file__).parent.parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["tmpfs", "limit"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder in which 64 KiB fit and 1 MiB does not: a tiny file system, or a size limit."""
    if request.param == "tmpfs":
        folder = tmp_path / "tiny"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
        try:
            yield tmp_path
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    store.write_json(path, {"b": 1.5, "a": "é"})
    store.write_json(path, [])
    assert json.loads(path.read_text()) == []
    assert names(tmp_path) == ["a.json"]


def test_a_full_disk_leaves_the_former_file_and_nothing_else(full_disk: Path) -> None:
    path = full_disk / "result.json"
    store.write_bytes(path, b"former")
    before = names(full_disk)
    with pytest.raises(PrerequisiteError) as caught:
        store.write_bytes(path, b"x" * 2**20)
    assert str(path) in str(caught.value)
    assert "free some space" in str(caught.value)
    assert path.read_bytes() == b"former"
    assert names(full_disk) == before


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.write_bytes(tmp_path / "none" / "a", b"")


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}])
def test_json_without_a_number_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(EvidenceError, match="can't be written as JSON"):
        store.write_json(tmp_path / "a.json", value)
    assert names(tmp_path) == []


def test_a_killed_writer_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"former")
    text = (
        f"import sys, os; sys.path.insert(0, {str(SOURCE)!r})\n"
        "from pathlib import Path; from kvseal import store\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), 9)\n"
        f"store.write_bytes(Path({str(path)!r}), b'new')\n"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == -9
    assert path.read_bytes() == b"former"


def test_a_run_folder_is_made_once(tmp_path: Path) -> None:
    folder = store.create_run_folder(tmp_path / "runs" / "one")
    assert (folder / "logs").is_dir()
    with pytest.raises(EvidenceError) as caught:
        store.create_run_folder(folder)
    assert str(folder) in str(caught.value)
    assert "remedy" in str(caught.value)


def test_a_file_in_the_way_of_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(EvidenceError, match="--out"):
            store.create_run_folder(path)


def test_a_link_is_repointed_and_a_folder_never_replaced(tmp_path: Path) -> None:
    link = tmp_path / "latest"
    store.point_link(link, "runs/one")
    store.point_link(link, "runs/two")
    assert str(link.readlink()) == "runs/two"
    (tmp_path / "real").mkdir()
    with pytest.raises(EvidenceError, match="real file or folder"):
        store.point_link(tmp_path / "real", "runs/two")
    assert names(tmp_path) == ["latest", "real"]


def test_lines_are_on_disk_and_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with store.LineFile(path) as lines:
        lines.append('{"a":1}')
        assert path.read_text() == '{"a":1}\n'
        with pytest.raises(EvidenceError, match="never appended"):
            store.LineFile(path)
        with pytest.raises(EvidenceError, match="line end"):
            lines.append("a\nb")
    with pytest.raises(EvidenceError, match="closed"):
        lines.append("x")


def test_a_line_that_finds_no_room_is_taken_back(full_disk: Path) -> None:
    path = full_disk / "history.jsonl"
    with store.LineFile(path) as lines:
        lines.append("first")
        with pytest.raises(PrerequisiteError, match=r"history\.jsonl"):
            lines.append("x" * 2**20)
        lines.append("second")
    assert path.read_text() == "first\nsecond\n"


def make_run(tmp_path: Path) -> Path:
    folder = store.create_run_folder(tmp_path / "run")
    (folder / "spec.json").write_text("{}\n")
    (folder / "logs" / "vllm.log").write_text("ready\n")
    store.write_manifest(folder)
    return folder


def test_an_untouched_run_folder_verifies(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    manifest = json.loads((folder / "files.json").read_text())
    assert sorted(manifest) == ["logs/vllm.log", "spec.json"]
    assert manifest["spec.json"]["bytes"] == 3
    report = store.verify_manifest(folder)
    assert report
    assert report.lines() == []


def test_each_kind_of_change_is_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "spec.json").write_text("[]\n")
    (folder / "logs" / "vllm.log").unlink()
    (folder / "new").write_text("")
    report = store.verify_manifest(folder)
    assert not report
    assert report.lines() == ["missing: logs/vllm.log", "not listed: new", "changed: spec.json"]


@pytest.mark.parametrize(
    "name", ["../spec.json", "/etc/passwd", "", ".", "a/../b", "a//b", "./a", "a/", "a\0b"]
)
def test_a_manifest_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path)
    (folder / "files.json").write_text(json.dumps({name: {"sha256": "", "bytes": 0}}))
    with pytest.raises(EvidenceError, match="leads out"):
        store.verify_manifest(folder)


def test_links_and_pipes_are_no_evidence(tmp_path: Path) -> None:
    for number, make in enumerate((lambda path: path.symlink_to("/etc/passwd"), os.mkfifo)):
        folder = make_run(tmp_path / str(number))
        make(folder / "odd")
        with pytest.raises(EvidenceError, match="neither a file nor a folder"):
            store.verify_manifest(folder)
        with pytest.raises(EvidenceError):
            store.file_digest(folder / "odd")


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1, "a": 2}', "{"])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    folder = make_run(tmp_path)
    (folder / "files.json").write_text(text)
    with pytest.raises(EvidenceError):
        store.verify_manifest(folder)
    (folder / "files.json").unlink()
    with pytest.raises(EvidenceError, match=r"no readable files\.json"):
        store.verify_manifest(folder)


def test_copy_in_keeps_the_bytes_and_never_overwrites(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    source = tmp_path / "source"
    source.write_bytes(b"data")
    digest = store.copy_in(source, folder, "extra/data.bin")
    assert digest == {"sha256": store.file_digest(source)["sha256"], "bytes": 4}
    assert (folder / "extra" / "data.bin").read_bytes() == b"data"
    with pytest.raises(EvidenceError, match="exists already"):
        store.copy_in(source, folder, "extra/data.bin")


def test_copy_in_follows_no_link_on_either_side(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(folder / "spec.json")
    with pytest.raises(EvidenceError):
        store.copy_in(link, folder, "copy")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "door").symlink_to(outside)
    with pytest.raises(EvidenceError, match="symbolic link"):
        store.copy_in(folder / "spec.json", folder, "door/copy")
    assert names(outside) == []
