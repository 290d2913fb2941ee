# SPDX-License-Identifier: Apache-2.0
"""`kvseal verify` on the engines of the workflow kv-reuse, with probes as small as they can be.

`scripts/check.py` runs this with the Python of that environment, whose packages
are as published, and names the run spec that it was built from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvseal.models.resolve import resolve_model
from kvseal.process import leftovers
from kvseal.process.leftovers import Leftovers
from kvseal.spec.runspec import VerifySpec

SPEC = os.environ.get("KVSEAL_CHECK_SPEC", "")
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class Verification:
    """A driver that was started, with the report that it keeps."""

    process: subprocess.Popen[str]
    report: Path

    @property
    def folder(self) -> Path:
        return self.report.with_name(f"{self.report.stem}.evidence")

    def stored(self) -> dict[str, Any] | None:
        """The report as it is on disk, which must be whole JSON at any moment."""
        try:
            text = self.report.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        found: dict[str, Any] = json.loads(text)
        return found

    def wait_for(
        self, condition: Callable[[dict[str, Any]], bool], seconds: float
    ) -> dict[str, Any]:
        """Wait until the report on disk fulfils `condition`, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.stored()
            if found is not None and condition(found):
                return found
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the run did not get there in time"
            time.sleep(0.02)

    def ended(self, seconds: float = 600) -> tuple[int, str]:
        """Exit status and all that was printed."""
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output

    def leaves_nothing(self, seconds: float = 0, shared_memory: tuple[str, ...] = ()) -> None:
        """Fail when something of it is there after `seconds`: its output leads to its folder."""
        deadline = time.monotonic() + seconds
        while left := self._left(shared_memory):
            assert time.monotonic() < deadline, left.lines()
            time.sleep(0.2)

    def _left(self, shared_memory: tuple[str, ...]) -> Leftovers:
        return leftovers(str(self.folder), shared_memory=shared_memory)

    def check(self, *options: str) -> subprocess.CompletedProcess[str]:
        """`kvseal check` of what is on disk, as a user would ask for it."""
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            ["scripts/bootstrap", "kvseal", "check", *options, str(self.report)],
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


Start = Callable[..., Verification]


@pytest.fixture(scope="session")
def model() -> Path:
    """The model that the workflow prepared."""
    if not SPEC:
        pytest.skip("KVSEAL_CHECK_SPEC names no run spec: run scripts/check")
    return resolve_model(VerifySpec.load(SPEC)).path


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Start]:
    """`kvseal verify` with the smallest probes there are, in a session of its own."""
    started = []

    def call(*options: str, **variables: str) -> Verification:
        report = tmp_path / "report.json"
        small = [
            *("--suite", "smoke", "--max-tokens", "4", "--max-model-len", "512"),
            *("--dtype", "float32", "--block-size", "32", "--cache-gib", "1"),
        ]
        command = [sys.executable, "-m", "kvseal", "verify", "--model", str(model)]
        process = subprocess.Popen(
            [*command, *small, *options, "--report", str(report)],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return Verification(process, report)

    yield call
    for process in started:
        if process.poll() is None:
            # Its engines end by themselves when it is gone.
            process.kill()
            process.wait()
