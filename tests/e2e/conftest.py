# SPDX-License-Identifier: Apache-2.0
"""The copy of the checkout that `scripts/check.py` hands over, and what a user types in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
Configure = Callable[[str, Mapping[str, bool | int | str]], None]
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


@pytest.fixture(scope="session")
def configure(checkout: Path) -> Configure:
    """Options of `.config` set as with an editor: the root symbol, then short names and values."""

    def change(root: str, options: Mapping[str, bool | int | str]) -> None:
        file = checkout / ".config"
        lines = file.read_text(encoding="utf-8").splitlines()
        for name, value in options.items():
            symbol = f"CONFIG_{root}_{name}"
            (place,) = [
                number
                for number, line in enumerate(lines)
                if line.startswith(f"{symbol}=") or line == f"# {symbol} is not set"
            ]
            lines[place] = _line(symbol, value)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return change


def _line(symbol: str, value: bool | int | str) -> str:
    if isinstance(value, bool):
        return f"{symbol}=y" if value else f"# {symbol} is not set"
    return f'{symbol}="{value}"' if isinstance(value, str) else f"{symbol}={value}"
