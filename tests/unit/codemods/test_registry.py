# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from kvseal.codemods.registry import CODEMODS, select
from kvseal.errors import OptionError
from kvseal.spec.options import NO_IDENTITY, WORKFLOWS, codemods_of


def test_each_codemod_has_the_name_of_its_module_and_stands_once() -> None:
    names = [codemod.name for codemod in CODEMODS]
    assert len(set(names)) == len(names)
    for codemod in CODEMODS:
        assert codemod.rewrite.__module__ == f"kvseal.codemods.{codemod.name}"


def test_the_module_that_others_import_is_added_first() -> None:
    names = [codemod.name for codemod in CODEMODS if codemod.name.startswith("lmcache_")]
    assert names[0] == "lmcache_transform_identity"


def test_only_and_without_choose_by_name() -> None:
    assert [c.name for c in select(only=["vllm_query_export"])] == ["vllm_query_export"]
    assert select(without=["vllm_query_export"]) == [
        codemod for codemod in CODEMODS if codemod.name != "vllm_query_export"
    ]
    assert select(["vllm_query_export"], ["vllm_query_export"]) == []
    assert select() == list(CODEMODS)


def test_a_workflow_narrows_the_choice() -> None:
    assert [c.name for c in select(wanted=["vllm_distribution_name"])] == ["vllm_distribution_name"]
    assert select(["vllm_query_export"], wanted=["vllm_distribution_name"]) == []
    assert select(wanted=[]) == []


def test_what_workflows_want_are_codemods() -> None:
    for workflow in WORKFLOWS.values():
        assert len(select(workflow.codemods or ())) == len(workflow.codemods or CODEMODS)
    names = {codemod.name for codemod in CODEMODS}
    assert set(codemods_of("lmcache-snapkv-matrix", NO_IDENTITY) or ()) < names
    assert select(wanted=codemods_of("lmcache-snapkv-matrix")) == list(CODEMODS)


def test_each_lmcache_has_a_lock_so_that_its_edits_are_tried_on_it() -> None:
    """`make check` installs the files of each; without a lock their tests would be skipped."""
    made_for = {v for codemod in CODEMODS for v in codemod.versions.get("lmcache", ())}
    locks = (Path(__file__).parents[3] / "requirements").glob("lmcache-*.txt")
    assert {lock.stem.removeprefix("lmcache-") for lock in locks} == made_for


@pytest.mark.parametrize("option", ["only", "without"])
def test_an_unknown_name_is_refused(option: str) -> None:
    with pytest.raises(OptionError, match="vllm_query_exprot") as caught:
        select(**{option: ["vllm_query_exprot"]})
    assert caught.value.option == f"--{option}"
