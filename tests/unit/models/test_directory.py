# SPDX-License-Identifier: Apache-2.0
"""A model directory is named by what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvseal.errors import OptionError
from kvseal.models.directory import read_directory
from kvseal.models.hub import fetch_from_hub


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_revision_is_the_digest_of_every_file(model: Path) -> None:
    before = read_directory(model)
    assert before.revision == f"sha256:{before.files_sha256}"
    assert set(before.files) == {"config.json", "tokenizer.json", "model.safetensors"}
    (model / "model.safetensors").write_bytes(b"Weights")
    assert read_directory(model).revision != before.revision


def test_hidden_files_do_not_name_a_model(model: Path) -> None:
    before = read_directory(model).revision
    (model / ".lock").write_text("x")
    assert read_directory(model).revision == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_directory_is_refused_by_what_it_lacks(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(OptionError, match=name.replace("model.", r"\*.")) as caught:
        read_directory(model)
    assert caught.value.value == str(model)
    assert caught.value.remedy


def test_config_that_is_no_object_is_refused(model: Path) -> None:
    (model / "config.json").write_text("[]")
    with pytest.raises(OptionError, match="not a JSON object"):
        read_directory(model).config()


@pytest.mark.parametrize("revision", ["", "main", "a" * 39, "A" * 40, "a" * 41])
def test_a_hub_revision_that_can_change_is_refused(revision: str) -> None:
    with pytest.raises(OptionError) as caught:
        fetch_from_hub("owner/model", revision)
    assert caught.value.value == revision
    assert "40" in str(caught.value.expected)
