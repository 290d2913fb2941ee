# SPDX-License-Identifier: Apache-2.0
"""What the verifier needs of a machine, where that is not what the comparison needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvseal.host.checks import Outcome, Status, needs, run_checks
from kvseal.host.facts import HostFacts
from kvseal.spec.runspec import VerifySpec

MakeFacts = Callable[..., HostFacts]
MakeSpec = Callable[..., VerifySpec]
GIB = 1 << 30
CONNECTORS = ("LMCacheMPConnector", "LMCacheConnectorV1", "none")


def named(outcomes: list[Outcome], name: str) -> Outcome:
    (found,) = [outcome for outcome in outcomes if outcome.name == name]
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_good_machine_passes_everything(
    make_facts: MakeFacts, make_verify_spec: MakeSpec, device: str, connector: str
) -> None:
    outcomes = run_checks(make_facts(), make_verify_spec(device, connector))
    assert {outcome.status for outcome in outcomes} == {Status.PASS}
    assert "port for vllm.port" not in {outcome.name for outcome in outcomes}


def test_remedies_name_the_verifier_s_own_symbols(
    make_facts: MakeFacts, make_verify_spec: MakeSpec
) -> None:
    facts = make_facts(gpus=None, memory=None, shared_memory=None, engine_python=None)
    for device in ("cpu", "cuda"):
        outcomes = run_checks(facts, make_verify_spec(device, CONNECTORS[0]))
        remedies = " ".join(remedy for outcome in outcomes for remedy in outcome.remedies)
        assert "CONFIG_WORKFLOW_KNLP_KV_REUSE_" in remedies
        assert "SNAPKV" not in remedies


def test_only_a_server_s_pool_is_in_shared_memory(make_verify_spec: MakeSpec) -> None:
    sizes = {
        (device, connector): needs.shared_memory_bytes(make_verify_spec(device, connector))[0]
        for device in ("cpu", "cuda")
        for connector in CONNECTORS
    }
    assert sizes["cuda", "LMCacheMPConnector"] > 3 * GIB
    assert sizes["cuda", "LMCacheConnectorV1"] == sizes["cuda", "none"] == 0
    assert sizes["cpu", "LMCacheMPConnector"] > sizes["cpu", "none"] > 0


def test_a_pool_counts_as_memory_where_there_is_one(
    make_facts: MakeFacts, make_verify_spec: MakeSpec
) -> None:
    needed = {}
    for connector in CONNECTORS:
        found = needs.host_memory_bytes(make_facts(), make_verify_spec("cuda", connector))
        assert found is not None
        needed[connector] = found[0]
    assert needed["LMCacheMPConnector"] == needed["LMCacheConnectorV1"]
    assert needed["LMCacheConnectorV1"] - needed["none"] == 3 * GIB


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_log_probabilities_need_no_cxx_compiler(
    make_facts: MakeFacts, make_verify_spec: MakeSpec, device: str
) -> None:
    """The verifier's engines run without TorchDynamo, which alone would want one."""
    outcomes = run_checks(make_facts(cxx_compiler=None), make_verify_spec(device, "none"))
    assert named(outcomes, "C++ compiler").status is Status.PASS
