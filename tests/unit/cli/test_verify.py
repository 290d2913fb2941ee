# SPDX-License-Identifier: Apache-2.0
"""Requests that `kvseal verify` refuses: exit status 2, what is wrong by name, nothing left behind.

These are seen through without an engine package. Those that need a tokenizer,
LMCache's own settings or an installed vLLM are in tests/verify.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kvseal.cli import main

IN_PROCESS = "LMCacheConnectorV1"
SERVER = "LMCacheMPConnector"
COMMIT = "0" * 40
CPU = ("--evidence-contract", "cpu")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The verb sets variables for the libraries that it will load."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def good(tmp_path: Path) -> dict[str, str]:
    """Options that would be accepted, by name."""
    model = tmp_path / "model"
    model.mkdir()
    (tmp_path / "lmcache.yaml").write_text("chunk_size: 256\n", encoding="utf-8")
    return {
        "--model": str(model),
        "--kv-connector": "none",
        "--report": str(tmp_path / "report.json"),
    }


def refused(
    capsys: pytest.CaptureFixture[str], options: dict[str, str], *more: str, folder: Path
) -> str:
    """Run the verb, see that it is refused and leaves nothing in `folder`; return what it said."""
    before = sorted(folder.rglob("*"))
    arguments = [part for option in options.items() for part in option]
    assert main(["verify", *arguments, *more]) == 2
    assert sorted(folder.rglob("*")) == before
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


def shows(said: str, option: str, value: str) -> None:
    (line,) = [line for line in said.splitlines() if f"option:   {option} = " in line]
    assert value in line
    assert "remedy: " in said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--gpu-memory-utilization", text) for text in ("0", "1", "-0.1", "nan", "inf", "half")),
        *(("--reuse-counts", text) for text in ("0", "1,1", "", "1,,3", "-1", "1.5", "one")),
        ("--suite", "quick"),
        ("--prompt-format", "xml"),
        ("--dtype", "int8"),
        ("--max-tokens", "0"),
        ("--seed", "-1"),
        ("--block-size", "0"),
        ("--chunk-size", "100"),
        ("--max-model-len", "0"),
        ("--cache-gib", "0"),
        ("--tenant", "a tenant"),
        ("--accept-deviation", "everything"),
        ("--evidence-contract", "lenient"),
        ("--kv-connector", "NixlConnector"),
        ("--kv-connector", SERVER),
        ("--kv-connector-module-path", "my.connector"),
        ("--lmcache-config", "lmcache.yaml"),
        ("--fixture", "figures.json"),
        ("--model", "/no/such/model"),
        ("--model", "./no/such/model"),
        ("--tokenizer", "/no/such/tokenizer"),
    ],
)
def test_a_value_that_can_t_be(
    good: dict[str, str],
    option: str,
    value: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = refused(capsys, {**good, option: value}, folder=tmp_path)
    shows(said, option, value)


@pytest.mark.parametrize("revision", ["main", "v1.0", "", "0" * 39, "A" * 40])
@pytest.mark.parametrize("option", ["--model", "--tokenizer"])
def test_a_revision_that_can_change(
    good: dict[str, str],
    option: str,
    revision: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {**good, option: "someone/something", f"{option}-revision": revision}
    shows(refused(capsys, options, folder=tmp_path), f"{option}-revision", revision)


def test_a_tokenizer_of_its_own_does_not_take_the_model_s_revision(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**good, "--model": "a/b", "--model-revision": COMMIT, "--tokenizer": "c/d"}
    shows(refused(capsys, options, folder=tmp_path), "--tokenizer-revision", "''")


@pytest.mark.parametrize("name", ["--model", "--kv-connector", "--report"])
def test_a_required_option_that_is_missing(
    good: dict[str, str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del good[name]
    said = refused(capsys, good, folder=tmp_path)
    assert f"option:   {name}\n" in said
    assert "remedy: " in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ((), ("--lmcache-config", "chunk_size: 256")),
        (
            ("--native-prefix-caching", "--lmcache-config", "l.yaml"),
            ("--native-prefix-caching", "one cache under test"),
        ),
        (
            ("--suite", "acceptance", "--compare-native", "--lmcache-config", "l.yaml"),
            ("--fixture", "kvseal.verification-fixture.v1"),
        ),
        (
            ("--suite", "acceptance", "--fixture", "f.json", "--lmcache-config", "l.yaml"),
            ("--suite", "--compare-native"),
        ),
    ],
    ids=["no settings", "two caches", "no fixture", "unpaired"],
)
def test_what_an_in_process_connector_needs(
    good: dict[str, str],
    more: tuple[str, ...],
    says: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {**good, "--kv-connector": IN_PROCESS}
    said = refused(capsys, options, *CPU, *more, folder=tmp_path)
    assert f"option:   {says[0]}" in said
    assert says[1] in said
    assert "remedy: " in said


@pytest.mark.parametrize("contract", ["strict", "cpu"])
def test_a_connector_of_another_contract_names_that_contract(
    good: dict[str, str], contract: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**good, "--kv-connector": SERVER, "--evidence-contract": contract}
    said = refused(capsys, options, folder=tmp_path)
    shows(said, "--kv-connector", SERVER)
    assert "--evidence-contract mp" in said


def test_native_caching_is_not_compared_with_itself(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, good, "--compare-native", folder=tmp_path)
    assert "option:   --compare-native" in said


def test_all_problems_at_once(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, {**good, "--suite": "quick", "--max-tokens": "0"}, folder=tmp_path)
    shows(said, "--suite", "quick")
    shows(said, "--max-tokens", "0")


@pytest.mark.parametrize("text", ['{"a": 1}', "[]", "not JSON", None])
def test_extra_configuration_of_a_connector(
    good: dict[str, str], text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "extra.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    options = {**good, "--kv-connector-extra-config": str(file)}
    shows(refused(capsys, options, folder=tmp_path), "--kv-connector-extra-config", "")


def test_empty_extra_configuration_is_none(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "extra.json"
    file.write_text("{}", encoding="utf-8")
    options = {**good, "--kv-connector-extra-config": str(file), "--max-tokens": "0"}
    said = refused(capsys, options, folder=tmp_path)
    assert "--kv-connector-extra-config" not in said


@pytest.mark.parametrize("existing", ["report.json", "report.evidence"])
def test_nothing_is_written_over(
    good: dict[str, str], existing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if existing.endswith(".json"):
        (tmp_path / existing).write_text("{}", encoding="utf-8")
    else:
        (tmp_path / existing).mkdir()
    shows(refused(capsys, good, folder=tmp_path), "--report", existing)


def test_a_dangling_link_is_something_too(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").symlink_to("nowhere")
    shows(refused(capsys, good, folder=tmp_path), "--report", "report.json")


@pytest.mark.parametrize("name", ["missing/report.json", "file/report.json", "a.evidence"])
def test_a_report_that_has_no_place(
    good: dict[str, str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    options = {**good, "--report": str(tmp_path / name)}
    shows(refused(capsys, options, folder=tmp_path), "--report", name)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that this user can't write in; for root, on a file system mounted read-only."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=4k", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("root can write anywhere, and there is no mount(8) for a read-only folder")
    if done.returncode != 0:
        pytest.skip(f"root can write anywhere, and may not mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_report_in_a_read_only_folder(
    good: dict[str, str], read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**good, "--report": str(read_only / "report.json")}
    shows(refused(capsys, options, folder=read_only), "--report", str(read_only))


def test_a_run_folder_goes_with_a_run_spec(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shows(refused(capsys, good, "--out", str(tmp_path / "run"), folder=tmp_path), "--out", "run")


def test_no_engine_installed(
    good: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This environment has none, so no contract can hold."""
    said = refused(capsys, good, folder=tmp_path)
    shows(said, "--evidence-contract", "strict")
    assert "the Python of an engine environment" in said
