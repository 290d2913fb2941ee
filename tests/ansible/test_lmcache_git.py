# SPDX-License-Identifier: Apache-2.0
"""LMCache from a git reference: which commit it is, that it stays, that it is installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "lmcache-{version}-py3-none-any.whl"
    info = "lmcache-{version}.dist-info/"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr(
            info + "METADATA", "Metadata-Version: 2.1\\nName: lmcache\\nVersion: {version}\\n"
        )
        wheel.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        )
        wheel.writestr(info + "RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "lmcache"
version = "{version}"
"""


class Repository:
    """A git repository with a project called lmcache; each commit is a version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch", "dev")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        command = ["git", "-C", str(self.path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, version: str) -> str:
        (self.path / "backend.py").write_text(BACKEND.replace("{version}", version))
        (self.path / "pyproject.toml").write_text(PROJECT.format(version=version))
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", version)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(built: Node) -> Repository:
    repository = Repository(built.root / "upstream")
    built.spec["lmcache"] |= {"source": "git", "repository": str(repository.path), "ref": "dev",
                              "version": ""}  # fmt: skip
    return repository


def installed(node: Node) -> set[str]:
    return {path.name for path in node.engine.glob("lib/python3*/site-packages/lmcache*")}


def test_branch_is_pinned_when_fetched(built: Node, repository: Repository) -> None:
    first = repository.commit("1.0")
    assert built.play("--tags", "fetch,build").status == 0
    record = json.loads((built.work / "lmcache-source.json").read_text())
    assert record == {"repository": str(repository.path), "ref": "dev", "commit": first}
    assert installed(built) == {"lmcache-1.0.dist-info"}

    repository.commit("2.0")
    again = built.play("--tags", "fetch,build")
    assert (again.status, again.changed) == (0, 0)


@pytest.mark.parametrize("kind", ["tag", "commit"])
def test_tag_and_commit(built: Node, repository: Repository, kind: str) -> None:
    wanted = repository.commit("1.0")
    repository.git("tag", "v1.0")
    repository.commit("2.0")
    built.spec["lmcache"]["ref"] = {"tag": "v1.0", "commit": wanted}[kind]
    assert built.play("--tags", "fetch").status == 0
    assert json.loads((built.work / "lmcache-source.json").read_text())["commit"] == wanted


def test_another_reference_is_built_over_the_first(built: Node, repository: Repository) -> None:
    repository.commit("1.0")
    repository.git("tag", "v1.0")
    repository.commit("2.0")
    assert built.play("--tags", "fetch,build").status == 0
    assert installed(built) == {"lmcache-2.0.dist-info"}
    built.spec["lmcache"]["ref"] = "v1.0"
    assert built.play("--tags", "fetch,build").status == 0
    assert installed(built) == {"lmcache-1.0.dist-info"}


def test_unknown_reference_is_refused(built: Node, repository: Repository) -> None:
    repository.commit("1.0")
    built.spec["lmcache"]["ref"] = "no-such-thing"
    played = built.play("--tags", "fetch")
    assert played.status == 2
    assert "no such tag, branch or commit" in played.output
    assert "LMCACHE_REF = no-such-thing" in played.output


def test_changed_checkout_is_refused(built: Node, repository: Repository) -> None:
    repository.commit("1.0")
    assert built.play("--tags", "fetch").status == 0
    (built.work / "lmcache" / "pyproject.toml").write_text("changed")
    played = built.play("--tags", "fetch")
    assert played.status == 2
    assert "changes that no commit holds" in played.output
