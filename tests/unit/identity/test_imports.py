# SPDX-License-Identifier: Apache-2.0
"""The identity of KV needs the standard library alone, and has the public names it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvseal.identity

FOLDER = Path(kvseal.identity.__file__).parent
MODULES = [
    "kvseal.identity",
    *(f"kvseal.identity.{p.stem}" for p in sorted(FOLDER.glob("[a-z]*.py"))),
]


@pytest.mark.parametrize("module", MODULES)
def test_the_standard_library_is_enough(module: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER.parents[1])!r})\n"
        f"import {module}\n"
        "outside = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(*sorted(outside - {'kvseal', '__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == []


def test_public_names() -> None:
    assert sorted(kvseal.identity.__all__) == kvseal.identity.__all__
    for name in kvseal.identity.__all__:
        assert getattr(kvseal.identity, name).__module__.startswith("kvseal.identity.")
