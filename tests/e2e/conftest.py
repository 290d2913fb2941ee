# SPDX-License-Identifier: Apache-2.0
"""The copy of the checkout that `scripts/check.py` hands over, and what a user types in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
COPY = os.environ.get("KVSEAL_CHECK_CHECKOUT", "")


@pytest.fixture(scope="session")
def checkout() -> Path:
    if not COPY:
        pytest.skip("KVSEAL_CHECK_CHECKOUT names no copy: run scripts/check")
    return Path(COPY)


@pytest.fixture(scope="session")
def make(checkout: Path) -> Command:
    """`make GOAL …`, whatever started this."""

    def call(*goals: str, timeout: float = 1800) -> subprocess.CompletedProcess[str]:
        environment = {key: text for key, text in os.environ.items() if not key.startswith("MAKE")}
        return subprocess.run(
            ["make", *goals],
            cwd=checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture(scope="session")
def kvseal(checkout: Path) -> Command:
    """`scripts/bootstrap kvseal VERB …`."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["scripts/bootstrap", "kvseal", *map(str, arguments)],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )

    return call
