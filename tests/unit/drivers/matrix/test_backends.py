# SPDX-License-Identifier: Apache-2.0
"""A second tier that can't be used: said in the history, with the run going on without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the driver runs in the engine environment")

from kvseal.backends import registry
from kvseal.drivers.matrix import run
from kvseal.drivers.matrix.lab import Lab
from kvseal.errors import PrerequisiteError
from kvseal.workload.matrix.case import BEHIND


class Rounds:
    """A history that keeps what is appended."""

    def __init__(self) -> None:
        self.history = self
        self.events: list[dict[str, Any]] = []

    def append(self, event: dict[str, Any]) -> None:
        self.events.append(event)


class BrokenLab:
    """A lab whose second tier does not come up; touching anything else would be an error."""

    backend = "resp"

    def __enter__(self) -> BrokenLab:
        raise PrerequisiteError("no redis-server on PATH", remedy="install redis-server")

    def __exit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


def test_a_backend_that_does_not_come_up_is_written_down_and_passed_over() -> None:
    rounds = Rounds()
    run._on_own_engines(SimpleNamespace(), BrokenLab(), rounds)  # type: ignore[arg-type]
    assert rounds.events == [
        {
            "event": "backend_unusable",
            "backend": "resp",
            "message": "no redis-server on PATH",
            "remedy": "install redis-server",
        }
    ]


def test_each_tier_of_the_matrix_is_a_backend_that_lasts_as_the_matrix_takes_it_to() -> None:
    for name, lasts in BEHIND.items():
        assert registry.backend(name).lasts_over_lmcache is lasts, name


def test_a_release_that_a_tier_refuses_is_said_before_any_engine_starts(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = SimpleNamespace(
        spec=SimpleNamespace(lmcache=SimpleNamespace(version="0.5.4")), run_id="r", logs=tmp_path
    )
    lab = Lab.__new__(Lab)
    monkeypatch.setattr(lab, "backend", "fs_native", raising=False)
    monkeypatch.setattr(lab, "_bench", bench, raising=False)
    with pytest.raises(Exception, match=r"fs_native can't be used with LMCache 0\.5\.4"):
        lab._start_behind()
