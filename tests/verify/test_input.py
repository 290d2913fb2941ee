# SPDX-License-Identifier: Apache-2.0
"""Requests that only the engine environment can see through: refused before an engine starts.

What needs no package is in tests/unit/cli/test_verify.py. Each refusal ends
with exit status 2, names option, value and remedy, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from kvseal.cli import main
from kvseal.host import nvidia

CPU = ("--evidence-contract", "cpu")
IN_PROCESS = (*CPU, "--kv-connector", "LMCacheConnectorV1")
NATIVE = (*CPU, "--kv-connector", "none", "--chunk-size", "64")
SMALL = ("--suite", "smoke", "--dtype", "float32", "--block-size", "32", "--max-model-len", "512")

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The verb sets variables for the libraries that it loads."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """A model that no engine could load, of which nothing but the weights is missing."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, folder)
    (folder / "model.safetensors").touch()
    return folder


@pytest.fixture
def refused(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Call the verb with good small options and those given; return what it said."""

    def call(*options: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        report = str(tmp_path / "report.json")
        assert main(["verify", "--model", str(copy), *SMALL, "--report", report, *options]) == 2
        # An engine's log would be in the evidence folder, which comes before the engine.
        assert sorted(tmp_path.rglob("*")) == before
        output = capsys.readouterr()
        assert output.out == ""
        return output.err

    return call


def shows(said: str, option: str, value: str) -> None:
    (line,) = [line for line in said.splitlines() if f"option:   {option} = " in line]
    assert value in line
    assert "remedy: " in said


def test_the_same_options_without_a_fault(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that no refusal below is for another reason than the one it is about."""
    options = ["verify", "--model", str(copy), *SMALL, *NATIVE, "--dry-run"]
    assert main(options) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verified"] is False
    assert len(shown["manifest"]["probes"]) == 6
    assert shown["manifest"]["generations_planned"]["total"] == 24


def test_strict_contract_where_vllm_is_of_a_cpu(refused: Refused) -> None:
    if nvidia.gpus().value:
        pytest.skip("this machine has an NVIDIA GPU: the refusal can't be seen here")
    said = refused("--kv-connector", "none")
    shows(said, "--evidence-contract", "strict")
    assert "--evidence-contract cpu or mp" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chunk_size: [1", "not YAML"),
        ("- chunk_size", "not a YAML mapping"),
        ("chunk_sise: 64", "perhaps chunk_size"),
        ("chunk_size: many", "chunk_size"),
        ("chunk_size: 64\nenable_blending: true", "enable_blending: True"),
        ("chunk_size: 64\nenable_pd: true", "enable_pd: True"),
        ("chunk_size: 64\nenable_p2p: true", "enable_p2p: True"),
        ("chunk_size: 64\nsave_unfull_chunk: true", "save_unfull_chunk: True"),
        ("\xff\xfe", "can't be read"),
    ],
)
def test_settings_of_lmcache(refused: Refused, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "lmcache.yaml"
    file.write_bytes(text.encode("latin-1"))
    said = refused(*IN_PROCESS, "--lmcache-config", str(file))
    shows(said, "--lmcache-config", "")
    assert says in said


def test_settings_that_are_not_there(refused: Refused, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        shows(refused(*IN_PROCESS, "--lmcache-config", str(path)), "--lmcache-config", str(path))


@pytest.mark.parametrize("variable", [None, "128"])
def test_chunk_size_that_lmcache_does_not_resolve(
    refused: Refused, tmp_path: Path, variable: str | None
) -> None:
    """The file's own value, or the environment's, which goes before it."""
    file = tmp_path / "lmcache.yaml"
    file.write_text("chunk_size: 64\n", encoding="utf-8")
    asserted = "256"
    if variable is not None:
        os.environ["LMCACHE_CHUNK_SIZE"] = variable
        asserted = "64"
    said = refused(*IN_PROCESS, "--lmcache-config", str(file), "--chunk-size", asserted)
    shows(said, "--chunk-size", asserted)
    resolved = variable or "64"
    origin = "the file" if variable is None else "the environment variable LMCACHE_CHUNK_SIZE"
    assert f"expected: {resolved}, from {origin}" in said


def test_setting_of_the_environment_outside_the_contract(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "lmcache.yaml"
    file.write_text("chunk_size: 64\n", encoding="utf-8")
    os.environ["LMCACHE_SAVE_UNFULL_CHUNK"] = "true"
    said = refused(*IN_PROCESS, "--lmcache-config", str(file))
    shows(said, "--lmcache-config", "LMCACHE_SAVE_UNFULL_CHUNK")


def test_no_chat_template(refused: Refused, copy: Path) -> None:
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    configuration = copy / "tokenizer_config.json"
    values = json.loads(configuration.read_text(encoding="utf-8"))
    values.pop("chat_template", None)
    configuration.write_text(json.dumps(values), encoding="utf-8")
    shows(refused(*NATIVE), "--prompt-format", "chat")
    # The model can still be asked raw.
    options = ["--model", str(copy), *SMALL, *NATIVE, "--prompt-format", "raw", "--dry-run"]
    assert main(["verify", *options]) == 0


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_model_without_a_tokenizer(refused: Refused, copy: Path, name: str) -> None:
    (copy / name).unlink()
    said = refused(*NATIVE)
    shows(said, "--tokenizer", str(copy))
    assert name in said


def test_tokenizer_that_is_damaged(refused: Refused, copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{", encoding="utf-8")
    shows(refused(*NATIVE), "--tokenizer", str(copy))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_model_directory_that_is_not_whole(refused: Refused, copy: Path, name: str) -> None:
    (copy / name).unlink()
    shows(refused(*NATIVE), "--model", str(copy))


def test_directory_of_other_contents_than_asserted(refused: Refused) -> None:
    digest = "sha256:" + "0" * 64
    shows(refused(*NATIVE, "--model-revision", digest), "--model-revision", digest)


def test_prompts_that_do_not_fit(refused: Refused) -> None:
    shows(refused(*NATIVE, "--max-tokens", "400"), "--max-model-len", "512")


def test_limit_beyond_the_model_s_own(refused: Refused) -> None:
    shows(refused(*NATIVE, "--max-model-len", "1000000"), "--max-model-len", "1000000")


def test_fixture_that_is_none(refused: Refused, tmp_path: Path) -> None:
    settings, file = tmp_path / "lmcache.yaml", tmp_path / "figures.json"
    settings.write_text("chunk_size: 64\n", encoding="utf-8")
    pair = (*IN_PROCESS, "--lmcache-config", str(settings), "--compare-native")
    for text in (None, "{", "{}"):
        if text is not None:
            file.write_text(text, encoding="utf-8")
        said = refused(*pair, "--suite", "acceptance", "--fixture", str(file))
        shows(said, "--fixture", "")
