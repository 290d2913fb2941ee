# SPDX-License-Identifier: Apache-2.0
"""What a backend answers when it is asked whether it can be used, and how."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from kvseal.backends.backend import IN_MEMORY, Backend, KeyText, Refusal, Running, Site
from kvseal.backends.needs import Module, Outside
from kvseal.errors import OptionError, PrerequisiteError


class Double(Backend):
    """A backend that needs two things nobody has."""

    name = "double"
    adapter_type = "double"
    lasts_over_lmcache = False
    needs = (
        Module("no_such_module_anywhere", "write it"),
        Outside("a second moon", "wait"),
    )
    refusals: ClassVar[Mapping[str, Refusal]] = {
        "0.5.4": Refusal("it mixes tenants", "take another", salted_only=True, leaks=True)
    }

    def key_text(self, version: str) -> KeyText:
        return IN_MEMORY


def test_all_that_is_missing_is_named_with_its_remedies() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        Double().require(version="0.5.6", python=sys.executable)
    text = str(caught.value)
    for part in ("no_such_module_anywhere", "a second moon", "write it", "wait"):
        assert part in text


def test_a_refused_release_is_named_before_anything_else() -> None:
    with pytest.raises(OptionError, match="it mixes tenants"):
        Double().require(version="0.5.4", python="/nowhere/python")


def test_a_release_refused_for_salts_alone_is_looked_at_further_without_them() -> None:
    with pytest.raises(PrerequisiteError, match="second moon"):
        Double().require(version="0.5.4", python=sys.executable, salted=False)


def test_a_backend_that_is_known_by_its_keys_alone_does_not_start(tmp_path: Path) -> None:
    with (
        pytest.raises(PrerequisiteError, match="double can't be started here"),
        Double().started(Site(tmp_path, run_id="test", logs=tmp_path)),
    ):
        pass


@pytest.mark.parametrize("act", ["restart", "wipe", "size"])
def test_what_a_backend_can_not_do_is_an_error(act: str) -> None:
    with pytest.raises(OptionError, match=f"no {act}"):
        getattr(Running(({"type": "double"},)), act)()


def test_acts_are_handed_on() -> None:
    done: list[str] = []
    running = Running(
        ({"type": "double"},),
        on_restart=lambda: done.append("restart"),
        on_wipe=lambda: done.append("wipe"),
        on_size=lambda: 7,
    )
    running.restart()
    running.wipe()
    assert (done, running.size()) == (["restart", "wipe"], 7)
