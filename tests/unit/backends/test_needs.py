# SPDX-License-Identifier: Apache-2.0
"""What is looked for on a machine: found, absent, or there and broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvseal.backends.needs import Missing, Module, Outside, Program, missing
from kvseal.errors import PrerequisiteError


def module(folder: Path, name: str, text: str = "") -> None:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in path.relative_to(folder).parents:
        if str(parent) != ".":
            (folder / parent / "__init__.py").touch()
    path.write_text(text, encoding="utf-8")


def whats(found: list[Missing]) -> list[str]:
    return [item.what for item in found]


def test_a_module_in_a_package_folder_is_found_without_running_its_package(tmp_path: Path) -> None:
    module(tmp_path, "outer.inner")
    (tmp_path / "outer/__init__.py").write_text("raise RuntimeError('imported')")
    assert missing([Module("outer.inner", "-")], sys.executable, [tmp_path]) == []
    assert whats(missing([Module("outer.other", "-")], sys.executable, [tmp_path])) == [
        "module outer.other: not installed"
    ]


def test_a_module_that_has_to_load_shows_why_it_does_not(tmp_path: Path) -> None:
    module(tmp_path, "broken", "raise ImportError('libibverbs.so.1: cannot open')")
    module(tmp_path, "noisy", "print('hello'); import sys; print('{}', file=sys.stdout)")
    needs = [
        Module("broken", "install the library", load=True),
        Module("noisy", "-", load=True),
        Module("absent", "install it", load=True),
    ]
    found = missing(needs, sys.executable, [tmp_path])
    assert whats(found) == [
        "module broken: ImportError: libibverbs.so.1: cannot open",
        "module absent: not installed",
    ]
    assert "install the library" in str(found[0])


def test_a_program_is_found_on_the_path_or_beside_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(("kvseal-no-such", "kvseal-made"), "make it")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.find() is None
    assert whats(missing([program], sys.executable, [])) == [
        "program kvseal-no-such or kvseal-made: not on PATH"
    ]
    with pytest.raises(PrerequisiteError, match="kvseal-made"):
        program.path()
    made = tmp_path / "packages/bin/kvseal-made"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    assert program.path([tmp_path / "packages"]) == str(made)


def test_what_no_package_brings_is_always_missing() -> None:
    assert whats(missing([Outside("a cluster", "build one")], sys.executable, [])) == ["a cluster"]


def test_a_python_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="can't be asked"):
        missing([Module("os", "-")], str(tmp_path / "python"), [])
