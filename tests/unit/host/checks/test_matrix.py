# SPDX-License-Identifier: Apache-2.0
"""What the matrix needs of a machine, where that is not what the comparison needs: two engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvseal.host.checks import Outcome, Status, needs, run_checks
from kvseal.host.facts import HostFacts
from kvseal.host.machine import Space
from kvseal.host.nvidia import Gpu
from kvseal.spec.runspec import MatrixSpec, RunSpec

MakeFacts = Callable[..., HostFacts]
MakeSpec = Callable[..., RunSpec]
MakeMatrix = Callable[[str], MatrixSpec]
GIB = 1 << 30
DEVICES = pytest.mark.parametrize("device", ["cpu", "cuda"])


def named(outcomes: list[Outcome], name: str) -> Outcome:
    (found,) = [outcome for outcome in outcomes if outcome.name == name]
    return found


@DEVICES
def test_a_good_machine_passes_everything(
    make_facts: MakeFacts, make_matrix_spec: MakeMatrix, device: str
) -> None:
    outcomes = run_checks(make_facts(), make_matrix_spec(device))
    assert {outcome.status for outcome in outcomes} == {Status.PASS}
    assert "port for vllm.port" not in {outcome.name for outcome in outcomes}


@DEVICES
def test_remedies_name_the_matrix_s_own_symbols(
    make_facts: MakeFacts, make_matrix_spec: MakeMatrix, device: str
) -> None:
    facts = make_facts(gpus=None, memory=Space(GIB, GIB), shared_memory=Space(GIB, GIB))
    outcomes = run_checks(facts, make_matrix_spec(device))
    remedies = " ".join(remedy for outcome in outcomes for remedy in outcome.remedies)
    assert "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX_L1_SIZE_GB" in remedies
    assert "SNAPKV_L1" not in remedies


@DEVICES
def test_memory_for_a_second_engine_and_the_model_in_transformers(
    make_facts: MakeFacts, make_spec: MakeSpec, make_matrix_spec: MakeMatrix, device: str
) -> None:
    facts = make_facts()
    assert facts.model_parameters.value is not None
    one, two = (
        needs.host_memory_bytes(facts, make_spec(device)),
        needs.host_memory_bytes(facts, make_matrix_spec(device)),
    )
    assert one is not None and two is not None
    more = needs.FURTHER_ENGINE_BYTES[device] + 4 * facts.model_parameters.value
    if device == "cpu":  # weights in float32, and 2 GiB for KV
        more += 4 * facts.model_parameters.value + 2 * GIB
    assert two[0] - one[0] == more
    assert "reference model" in two[1]


def test_shared_memory_of_both_engines_is_on_a_cpu_alone(
    make_spec: MakeSpec, make_matrix_spec: MakeMatrix
) -> None:
    more = {
        device: needs.shared_memory_bytes(make_matrix_spec(device))[0]
        - needs.shared_memory_bytes(make_spec(device))[0]
        for device in ("cpu", "cuda")
    }
    assert more == {"cpu": 2 * GIB + needs.SHM_CPU_BYTES, "cuda": 0}


@pytest.mark.parametrize(("free_percent", "status"), [(70, Status.PASS), (69, Status.FAIL)])
def test_a_gpu_has_the_share_twice(
    make_facts: MakeFacts, make_matrix_spec: MakeMatrix, free_percent: int, status: Status
) -> None:
    plain = make_facts().gpus.value
    assert plain is not None
    total = 100 * GIB
    gpu = Gpu(**{**vars(plain[0]), "memory_total_bytes": total,
                 "memory_free_bytes": total * free_percent // 100})  # fmt: skip
    found = named(run_checks(make_facts(gpus=(gpu,)), make_matrix_spec("cuda")), "GPU memory")
    assert found.status is status
    assert "2 times 35 %" in found.needed
