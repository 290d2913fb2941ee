# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kvseal.codemods.unified import unified_diff


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\n", b"a\nc\n"),
        (b"a\nb", b"a\nb\nc"),
        (b"a\x0cb\r\n\xe2\x80\xa8c\n", b"a\x0cb\r\nc\n"),
        (None, b"new\n"),
        (None, b"new"),
    ],
)
def test_git_applies_it_to_the_same_bytes(
    before: bytes | None, after: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "p/a.py"
    file.parent.mkdir()
    if before is not None:
        file.write_bytes(before)
    text = unified_diff({"p/a.py": (before, after)})
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), check=True)
    assert file.read_bytes() == after


def test_no_files_give_no_text() -> None:
    assert unified_diff({}) == ""
