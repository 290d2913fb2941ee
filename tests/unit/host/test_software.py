# SPDX-License-Identifier: Apache-2.0
"""Programs found on PATH, and those that are not."""

import sys
from pathlib import Path

import pytest

from kvseal.host import command, software


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_running_python_is_found_and_an_odd_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ".".join(str(part) for part in sys.version_info[:2])
    assert software.python_for(here).value == sys.executable
    monkeypatch.setenv("PATH", str(tmp_path))
    assert software.python_for("3.99").value is None
    broken = program(tmp_path, "python3.99", "exit 127")
    assert software.python_for("3.99").value is None, "a shim of a version that is not installed"
    broken.write_text("#!/bin/sh\necho runs\n")
    assert software.python_for("3.99").value == str(broken)


def test_compilers_by_variable_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert software.c_compiler().value is None
    assert "gcc or clang" in software.c_compiler().reason
    clang = program(tmp_path, "clang", "")
    assert software.c_compiler().value == str(clang)
    mine = program(tmp_path, "my-c++", "")
    monkeypatch.setenv("CXX", "my-c++")
    assert software.cxx_compiler().value == str(mine)


def test_a_program_that_fails_or_hangs_gives_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "fails", "echo first; echo second; exit 9")
    assert command.ask(["fails"]).reason == "fails exited with 9 and said: first"
    program(tmp_path, "hangs", "exec sleep 20")
    assert "did not answer" in command.ask(["hangs"], timeout_seconds=0.2).reason
    assert command.ask(["no-such-program"]).reason == "no-such-program is not installed"


def test_glibc_of_this_machine_or_the_reason() -> None:
    fact = software.glibc()
    assert (fact.value is None) == bool(fact.reason)
