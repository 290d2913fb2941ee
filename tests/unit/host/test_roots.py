# SPDX-License-Identifier: Apache-2.0
"""Root folders that exist, do not yet, or can't."""

import os
from pathlib import Path

import pytest

from kvseal.host.roots import root


def test_a_folder_to_be_made_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = root(str(tmp_path / "a" / "b")).value
    assert found is not None
    assert found.existing == str(tmp_path)
    assert found.problem == ""
    assert found.free_bytes > 0
    assert not (tmp_path / "a").exists(), "looking makes nothing"


def test_a_file_in_the_way_and_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    in_the_way = root(str(tmp_path / "file" / "root")).value
    assert in_the_way is not None
    assert "is not a folder" in in_the_way.problem
    relative = root("results").value
    assert relative is not None
    assert "absolute" in relative.problem


def test_a_folder_without_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Said for root too, who may write everywhere and else could not test this.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = root(str(tmp_path / "a")).value
    assert found is not None
    assert "may not write" in found.problem


def test_proc_is_no_place_for_a_root() -> None:
    found = root("/proc/1/none").value
    assert found is None or found.existing.startswith("/proc")
