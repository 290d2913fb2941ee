# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.inspection import inspect
from kvseal.codemods.registry import select
from kvseal.codemods.vllm_query_export import ATTENTION_WRAPPER, CONNECTOR_BASE

CODEMODS = tuple(select(["vllm_distribution_name", "vllm_query_export"]))


def test_an_unpatched_environment_has_an_empty_record_and_stays_untouched(
    environment: Environment,
) -> None:
    found = inspect(environment)
    assert (found.problems, found.files, found.record["codemods"]) == ([], {}, [])
    assert not (environment.root / ".kvseal").exists()


def test_a_patched_environment_is_as_recorded(environment: Environment) -> None:
    patchset.apply(environment, CODEMODS)
    found = inspect(environment)
    assert found.problems == []
    assert set(found.files.values()) == {"patched"}
    assert ATTENTION_WRAPPER in found.diff


def test_each_kind_of_difference_is_told(
    environment: Environment, small_sources: dict[str, bytes]
) -> None:
    patchset.apply(environment, CODEMODS)
    (environment.site_packages / CONNECTOR_BASE).write_bytes(small_sources[CONNECTOR_BASE])
    (environment.site_packages / ATTENTION_WRAPPER).write_bytes(b"mine")
    (environment.site_packages / "vllm-0.28.0+cpu.dist-info/METADATA").unlink()
    found = inspect(environment)
    assert found.files[CONNECTOR_BASE] == "original"
    assert found.files[ATTENTION_WRAPPER] == "changed"
    assert found.files["vllm-0.28.0+cpu.dist-info/METADATA"] == "original"
    assert len(found.problems) == 3
    (environment.site_packages / ATTENTION_WRAPPER).unlink()
    assert inspect(environment).files[ATTENTION_WRAPPER] == "missing"


def test_a_diff_that_is_not_the_recorded_one_is_a_problem(environment: Environment) -> None:
    patchset.apply(environment, CODEMODS)
    diff = environment.root / ".kvseal/patches.diff"
    diff.write_text(diff.read_text() + "+more\n")
    assert [p for p in inspect(environment).problems if "patches.diff" in p]
    assert patchset.apply(environment, CODEMODS).changed
    assert inspect(environment).problems == []
