# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kvseal.codemods.registry import CODEMODS, select
from kvseal.errors import OptionError
from kvseal.spec.options import WORKFLOWS


def test_the_codemods_are_these() -> None:
    assert [c.name for c in CODEMODS] == ["vllm_distribution_name", "vllm_query_export"]


def test_only_and_without_choose_by_name() -> None:
    assert [c.name for c in select(only=["vllm_query_export"])] == ["vllm_query_export"]
    assert [c.name for c in select(without=["vllm_query_export"])] == ["vllm_distribution_name"]
    assert select(["vllm_query_export"], ["vllm_query_export"]) == []
    assert select() == list(CODEMODS)


def test_a_workflow_narrows_the_choice() -> None:
    assert [c.name for c in select(wanted=["vllm_distribution_name"])] == ["vllm_distribution_name"]
    assert select(["vllm_query_export"], wanted=["vllm_distribution_name"]) == []
    assert select(wanted=[]) == []


def test_what_workflows_want_are_codemods() -> None:
    for workflow in WORKFLOWS.values():
        assert len(select(workflow.codemods or ())) == len(workflow.codemods or CODEMODS)


@pytest.mark.parametrize("option", ["only", "without"])
def test_an_unknown_name_is_refused(option: str) -> None:
    with pytest.raises(OptionError, match="vllm_query_exprot") as caught:
        select(**{option: ["vllm_query_exprot"]})
    assert caught.value.option == f"--{option}"
