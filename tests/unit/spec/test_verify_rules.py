# SPDX-License-Identifier: Apache-2.0
"""Each rule of a verification: a configuration that must pass beside one that must fail."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec import bounds, contracts, verify_request, verify_rules
from kvseal.spec.options import KV_REUSE
from kvseal.spec.translate import translate

CPU = {"CONTRACT": "cpu", "CONNECTOR": "LMCacheConnectorV1"}
NONE = {"CONTRACT": "cpu", "CONNECTOR": "none", "COMPARE_NATIVE": False}
PAIR = {"SUITE": "acceptance", "FIXTURE": "/fixture.json"}


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        (CPU, {"CONTRACT": "strict", "CONNECTOR": "LMCacheConnectorV1"}, "CONTRACT"),
        (NONE, {**NONE, "COMPARE_NATIVE": True}, "COMPARE_NATIVE"),
        (NONE, {**NONE, "CONTRACT": "mp"}, "CONNECTOR"),
        ({}, {"CONNECTOR": "LMCacheConnectorV1"}, "CONNECTOR"),
        (CPU, {**CPU, "CONNECTOR": "LMCacheMPConnector"}, "CONNECTOR"),
        ({}, {"CONTRACT": "lax"}, "CONTRACT"),
        ({}, {"CONNECTOR": "NixlConnector"}, "CONNECTOR"),
        ({}, {"SUITE": "all"}, "SUITE"),
        ({"PROMPT_FORMAT": "both"}, {"PROMPT_FORMAT": "xml"}, "PROMPT_FORMAT"),
        ({"TENANT": "a"}, {"TENANT": ""}, "TENANT"),
        (PAIR, {"SUITE": "acceptance"}, "FIXTURE"),
        ({**PAIR, **CPU}, {"SUITE": "smoke", "FIXTURE": "/fixture.json"}, "FIXTURE"),
        (PAIR, {**PAIR, "COMPARE_NATIVE": False}, "COMPARE_NATIVE"),
        (PAIR, {**PAIR, **NONE}, "CONNECTOR"),
        ({**PAIR, "REUSE_COUNTS": "1, 3"}, {**PAIR, "REUSE_COUNTS": "1"}, "REUSE_COUNTS"),
        (PAIR, {**PAIR, "PROMPT_FORMAT": "chat"}, "PROMPT_FORMAT"),
        ({"ACCEPT_DEVIATIONS": "torch"}, {"ACCEPT_DEVIATIONS": "cuda"}, "ACCEPT_DEVIATIONS"),
        ({"ACCEPT_DEVIATIONS": " "}, {"ACCEPT_DEVIATIONS": "torch,"}, "ACCEPT_DEVIATIONS"),
        ({}, {"ACCEPT_DEVIATIONS": "torch,torch"}, "ACCEPT_DEVIATIONS"),
        ({"CHUNK_SIZE": 96}, {"CHUNK_SIZE": 80}, "CHUNK_SIZE"),
        ({"GPU_MEMORY_PERCENT": 95}, {"GPU_MEMORY_PERCENT": 100}, "GPU_MEMORY_PERCENT"),
        ({"GPU_MEMORY_PERCENT": 1}, {"GPU_MEMORY_PERCENT": 0}, "GPU_MEMORY_PERCENT"),
    ],
)
def test_rule(verify_with, good, bad, name):
    assert verify_with(**good)
    with pytest.raises(OptionError) as caught:
        verify_with(**bad)
    assert caught.value.option == KV_REUSE.symbol(name)
    assert caught.value.expected and caught.value.remedy


@pytest.mark.parametrize("text", ["", "0", "1,1", "x", "1,x", "-1", "1.5", ",", "1,", "1;3"])
def test_reuse_counts(verify_with, text):
    assert verify_with(REUSE_COUNTS="1").verify.reuse_counts == (1,)
    with pytest.raises(OptionError) as caught:
        verify_with(REUSE_COUNTS=text)
    assert caught.value.option == KV_REUSE.symbol("REUSE_COUNTS")
    assert caught.value.value == text
    assert caught.value.expected and caught.value.remedy


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        ({}, {"CONTRACT": "cpu"}, "CONTRACT"),
        ({"CONNECTOR": "none", "COMPARE_NATIVE": False}, {"CONNECTOR": "none"}, "COMPARE_NATIVE"),
        ({"CONTRACT": "mp", "CONNECTOR": "LMCacheMPConnector"}, {"CONTRACT": "mp"}, "CONNECTOR"),
        (
            {},
            {"VLLM_VERSION": "0.23.0", "LMCACHE_FROM_GIT": True, "LMCACHE_REF": "v0.5.4"},
            "VLLM_VERSION",
        ),
    ],
)
def test_rule_on_a_gpu(profile, around, good, bad, name):
    def make(changes):
        variables = profile("kv-reuse")
        variables |= {f"{KV_REUSE.root}_{key}".lower(): value for key, value in changes.items()}
        return translate(variables, around)

    assert make(good)
    with pytest.raises(OptionError) as caught:
        make(bad)
    assert caught.value.option == KV_REUSE.symbol(name)


def test_remedy_for_the_connector_of_another_contract_works(verify_with):
    with pytest.raises(OptionError) as caught:
        verify_with(**{**CPU, "CONNECTOR": "LMCacheMPConnector"})
    assert caught.value.remedy.endswith(f"{KV_REUSE.symbol('CONTRACT')} to mp")
    assert verify_with(CONTRACT="mp", CONNECTOR="LMCacheMPConnector")


def test_choices_are_those_of_the_verifier():
    """The schema is read without the registry, so it repeats what there is."""
    rule = bounds.schema()["properties"]["verify"]["properties"]
    assert rule["contract"]["enum"] == list(contracts.CONTRACTS)
    connectors = {c.name for each in contracts.CONTRACTS.values() for c in each.connectors}
    assert set(rule["connector"]["enum"]) == connectors | {contracts.NO_CONNECTOR}
    assert set(rule["suite"]["enum"]) == set(verify_request.SUITES)
    assert set(rule["prompt_format"]["enum"]) == {"", *verify_request.PROMPT_FORMATS}
    assert rule["tenant"]["pattern"] == f"^{verify_request.TENANT.pattern}$"
    assert verify_rules.ACCEPTANCE_COUNTS == verify_request.DEFAULT_REUSE_COUNTS
