# SPDX-License-Identifier: Apache-2.0
"""A model is a commit or the digest of a directory's files, and nothing that can move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvseal.canonical import digest
from kvseal.drivers.verify import identity
from kvseal.errors import OptionError
from kvseal.models.directory import ModelDirectory, file_sha256

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"max_position_embeddings": 2048}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def resolve(name: str | Path, revision: str = "") -> ModelDirectory:
    return identity.resolve(
        str(name), revision, option="--model", required=identity.MODEL_FILES, remedy="another"
    )


def refused(name: str | Path, revision: str = "", option: str = "--model") -> OptionError:
    with pytest.raises(OptionError) as caught:
        identity.refuse(str(name), revision, option=option)
    assert caught.value.remedy
    return caught.value


def test_files_that_a_model_and_a_tokenizer_must_have() -> None:
    assert identity.MODEL_FILES == ("config.json", "*.safetensors")
    assert identity.TOKENIZER_FILES == ("tokenizer.json", "tokenizer_config.json")


def test_a_directory_is_named_by_its_files(model: Path) -> None:
    files = {name: file_sha256(model / name) for name in ("config.json", "model.safetensors")}
    found = resolve(model)
    assert found.files == files
    assert found.revision == f"sha256:{digest(files)}"
    assert found.path == model
    assert resolve(model, found.revision) == found


def test_a_directory_given_from_here_is_recorded_from_the_root(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("HOME", str(model.parent))
    for name in ("./model", "model", "~/model"):
        assert resolve(name).path == model
    (model.parent / "link").symlink_to("model")
    assert resolve("link").path == model


@pytest.mark.parametrize("revision", ["main", COMMIT, "sha256:", f"sha256:{'0' * 64}"])
def test_a_directory_that_is_not_the_one_that_was_pinned(model: Path, revision: str) -> None:
    with pytest.raises(OptionError, match="no revision but the digest") as caught:
        resolve(model, revision)
    assert (caught.value.option, caught.value.value) == ("--model-revision", revision)
    assert caught.value.expected == resolve(model).revision


def test_a_pinned_directory_that_has_changed(model: Path) -> None:
    pinned = resolve(model).revision
    (model / "model.safetensors").write_bytes(b"Weights")
    with pytest.raises(OptionError):
        resolve(model, pinned)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_directory_that_lacks_a_file(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(OptionError) as caught:
        resolve(model)
    assert caught.value.option == "--model"
    assert (name if name == "config.json" else "*.safetensors") in caught.value.message
    assert caught.value.remedy == "another"


@pytest.mark.parametrize("name", ["/no/such", "./no/such", "../no/such", "~/no/such"])
def test_a_directory_that_is_not_there(name: str) -> None:
    found = refused(name, COMMIT)
    assert (found.message, found.option, found.value) == ("no such directory", "--model", name)


@pytest.mark.parametrize(
    "revision", ["", "main", "v1", COMMIT[:39], COMMIT.upper(), f"{COMMIT}0", f"{COMMIT}\n"]
)
@pytest.mark.parametrize("option", ["--model", "--tokenizer"])
def test_a_revision_that_can_change(revision: str, option: str) -> None:
    found = refused("someone/model", revision, option)
    assert (found.option, found.value) == (f"{option}-revision", revision)
    assert found.expected == "a 40-character commit"


def test_what_is_not_refused(model: Path) -> None:
    identity.refuse("someone/model", COMMIT, option="--model")
    identity.refuse(str(model), "main", option="--model")


def test_a_hub_s_snapshot(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = ModelDirectory(model, "someone/model", COMMIT, {"config.json": "0"}, changed=False)
    asked = []

    def fetch(name: str, revision: str, *, option: str) -> ModelDirectory:
        asked.append((name, revision, option))
        return snapshot

    monkeypatch.setattr(identity, "fetch_from_hub", fetch)
    assert resolve("someone/model", COMMIT) is snapshot
    assert asked == [("someone/model", COMMIT, "--model")]
    (model / "model.safetensors").unlink()
    with pytest.raises(OptionError, match="lacks"):
        resolve("someone/model", COMMIT)
    with pytest.raises(OptionError, match="can change"):
        resolve("someone/model", "main")
    assert len(asked) == 2, "nothing is fetched for a revision that is refused"


def limit(model: Path, config: dict[str, Any], asked: int | None = None) -> int:
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return identity.position_limit(resolve(model), asked)


@pytest.mark.parametrize(
    ("config", "asked", "tokens"),
    [
        ({"max_position_embeddings": 2048}, None, 2048),
        ({"max_position_embeddings": 2048}, 2048, 2048),
        ({"max_position_embeddings": 2048}, 100, 100),
        ({"text_config": {"max_position_embeddings": 8}, "max_position_embeddings": 9}, None, 8),
        ({"text_config": "none", "max_position_embeddings": 9}, None, 9),
        ({}, 512, 512),
        ({"max_position_embeddings": None}, 512, 512),
        ({"max_position_embeddings": True}, 512, 512),
        ({"max_position_embeddings": 1}, None, 1),
    ],
)
def test_the_limit_of_prompt_and_output(
    model: Path, config: dict[str, Any], asked: int | None, tokens: int
) -> None:
    assert limit(model, config, asked) == tokens


@pytest.mark.parametrize("own", [None, 0, -1, "2048", 2048.0, True])
def test_no_limit_at_all(model: Path, own: object) -> None:
    with pytest.raises(OptionError, match="names no max_position_embeddings") as caught:
        limit(model, {"max_position_embeddings": own})
    assert caught.value.option == "--max-model-len"
    assert caught.value.remedy == "give --max-model-len"


def test_a_limit_beyond_the_model_s(model: Path) -> None:
    with pytest.raises(OptionError, match="beyond the model's own limit") as caught:
        limit(model, {"max_position_embeddings": 2048}, 2049)
    assert (caught.value.option, caught.value.value) == ("--max-model-len", 2049)
    assert caught.value.expected == "at most 2048"


def test_requested_and_resolved_identity(model: Path) -> None:
    found = resolve(model)
    assert identity.described("~/model", "", found) == {
        "requested": "~/model",
        "requested_revision": "",
        "path": str(model),
        "revision": found.revision,
        "files": found.files,
        "files_sha256": found.files_sha256,
    }
