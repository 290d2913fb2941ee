# SPDX-License-Identifier: Apache-2.0
"""What may be asked of the verifier, and what each option is when nobody says so.

Single bad values as a user types them are in tests/unit/cli/test_verify.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from kvseal.cli import verify
from kvseal.errors import OptionError
from kvseal.spec import verify_request
from kvseal.spec.verify_request import (
    VerifyRequest,
    check,
    parse_reuse_counts,
    parse_utilization,
)

SETTINGS = Path("lmcache.yaml")
IN_PROCESS: dict[str, Any] = {"kv_connector": "LMCacheConnectorV1", "lmcache_config": SETTINGS}
SERVER: dict[str, Any] = {"kv_connector": "LMCacheMPConnector", "contract": "mp"}
ACCEPTANCE: dict[str, Any] = {
    **IN_PROCESS, "suite": "acceptance", "compare_native": True, "fixture": Path("l4.json"),
}  # fmt: skip


def request(**changes: Any) -> VerifyRequest:
    required = {
        "model": "a/b",
        "model_revision": "0" * 40,
        "tokenizer": "a/b",
        "tokenizer_revision": "0" * 40,
        "kv_connector": "none",
    }
    return VerifyRequest(**{**required, **changes})


def problem(**changes: Any) -> OptionError:
    with pytest.raises(OptionError) as caught:
        check(request(**changes))
    assert "problems in this configuration" not in caught.value.message, str(caught.value)
    assert caught.value.remedy
    return caught.value


DEFAULTS: dict[str, Any] = {
    "contract": "strict",
    "lmcache_config": None,
    "compare_native": False,
    "native_prefix_caching": None,
    "fixture": None,
    "suite": "standard",
    "prompt_format": None,
    "reuse_counts": (1, 3),
    "max_tokens": 16,
    "seed": 0,
    "dtype": "float16",
    "gpu_memory_utilization": 0.45,
    "max_model_len": None,
    "block_size": 16,
    "chunk_size": None,
    "tenant": "isolated-verifier",
    "cache_gib": 2,
    "cpu_kv_gib": 2,
    "engine_start_seconds": 1800,
    "server_start_seconds": 180,
    "server_port": 0,
    "server_http_port": 0,
    "accepted_deviations": (),
    "visible_devices": None,
}


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_defaults_of_the_public_contract(name: str, default: Any) -> None:
    assert getattr(request(), name) == default


def test_what_has_no_default() -> None:
    required = ["model", "model_revision", "tokenizer", "tokenizer_revision", "kv_connector"]
    fields = dataclasses.fields(VerifyRequest)
    assert [entry.name for entry in fields if entry.default is dataclasses.MISSING] == required
    assert [entry.name for entry in fields] == [*required, *DEFAULTS]


def parsed(*options: str) -> VerifyRequest:
    parser = argparse.ArgumentParser()
    verify.configure(parser)
    required = ("--model", "a/b", "--model-revision", "0" * 40, "--kv-connector", "none")
    return verify._from_options(parser.parse_args([*required, "--report", "r.json", *options]))


def test_a_command_line_with_nothing_else_means_the_defaults() -> None:
    assert parsed() == request()


def test_the_command_line_says_all_of_it() -> None:
    options = {
        "--tokenizer": "c/d", "--tokenizer-revision": "1" * 40, "--evidence-contract": "cpu",
        "--lmcache-config": "l.yaml", "--fixture": "f.json", "--suite": "smoke",
        "--prompt-format": "raw", "--reuse-counts": "2", "--max-tokens": "3", "--seed": "4",
        "--dtype": "float32", "--gpu-memory-utilization": "0.5", "--max-model-len": "600",
        "--block-size": "32", "--chunk-size": "64", "--tenant": "t", "--cache-gib": "7",
        "--cpu-kv-gib": "8",
        "--accept-deviation": "torch",
    }  # fmt: skip
    flags = ("--compare-native", "--no-native-prefix-caching")
    assert parsed(*(part for pair in options.items() for part in pair), *flags) == request(
        tokenizer="c/d",
        tokenizer_revision="1" * 40,
        contract="cpu",
        lmcache_config=Path("l.yaml"),
        fixture=Path("f.json"),
        suite="smoke",
        prompt_format="raw",
        reuse_counts=(2,),
        max_tokens=3,
        seed=4,
        dtype="float32",
        gpu_memory_utilization=0.5,
        max_model_len=600,
        block_size=32,
        chunk_size=64,
        tenant="t",
        cache_gib=7,
        cpu_kv_gib=8,
        accepted_deviations=("torch",),
        compare_native=True,
        native_prefix_caching=False,
    )


def test_the_span_without_lmcache_is_256_tokens_or_16_blocks() -> None:
    assert (verify_request.DEFAULT_SPAN_TOKENS, verify_request.DEFAULT_SPAN_BLOCKS) == (256, 16)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"native_prefix_caching": True},
        {"native_prefix_caching": False},
        {"contract": "cpu"},
        {"contract": "mp"},
        IN_PROCESS,
        {**IN_PROCESS, "native_prefix_caching": False},
        {**IN_PROCESS, "compare_native": True, "contract": "cpu"},
        SERVER,
        {**SERVER, "compare_native": True, "chunk_size": 64, "block_size": 32},
        ACCEPTANCE,
        {**ACCEPTANCE, **SERVER, "lmcache_config": None},
        {"reuse_counts": (2,), "max_tokens": 1, "seed": 1, "max_model_len": 1, "cache_gib": 1},
        {"block_size": 1, "chunk_size": 1, "tenant": "a"},
        {"tenant": "A" * 64},
        {"tenant": "0.a-b_c"},
        *({"suite": "smoke", "prompt_format": name} for name in ("raw", "chat", "both")),
        *({"dtype": name} for name in ("float16", "bfloat16", "float32")),
        {"accepted_deviations": ("torch", "vllm-files", "lmcache-files")},
    ],
)
def test_what_may_be_asked(changes: dict[str, Any]) -> None:
    check(request(**changes))


@pytest.mark.parametrize(
    ("changes", "targets"),
    [
        ({}, ("native",)),
        ({"native_prefix_caching": True}, ("native",)),
        ({"native_prefix_caching": False}, ()),
        (IN_PROCESS, ("lmcache",)),
        ({**IN_PROCESS, "native_prefix_caching": False}, ("lmcache",)),
        ({**IN_PROCESS, "compare_native": True}, ("lmcache", "native")),
        (SERVER, ("mp",)),
        ({**SERVER, "compare_native": True}, ("mp", "native")),
        (ACCEPTANCE, ("lmcache", "native")),
    ],
)
def test_targets(changes: dict[str, Any], targets: tuple[str, ...]) -> None:
    assert request(**changes).targets == targets


def test_the_connector_is_the_contract_s() -> None:
    assert request().connector is None
    found = request(**IN_PROCESS).connector
    assert found is not None
    assert found.target == "lmcache"
    assert request(**SERVER).evidence_contract.name == "mp"


@pytest.mark.parametrize(
    ("suite", "asked", "formats"),
    [
        ("standard", None, ("raw", "chat")),
        ("smoke", None, ("chat",)),
        ("acceptance", None, ("chat",)),
        ("standard", "raw", ("raw",)),
        ("standard", "chat", ("chat",)),
        ("smoke", "both", ("raw", "chat")),
    ],
)
def test_formats(suite: str, asked: str | None, formats: tuple[str, ...]) -> None:
    assert request(suite=suite, prompt_format=asked).formats == formats


@pytest.mark.parametrize(
    ("text", "counts"),
    [("1,3", (1, 3)), ("1", (1,)), ("3,1", (3, 1)), (" 2 , 4 ", (2, 4)), ("999999", (999999,))],
)
def test_reuse_counts(text: str, counts: tuple[int, ...]) -> None:
    assert parse_reuse_counts(text) == counts


@pytest.mark.parametrize("text", ["1,01", "3,1,3", "1,0", "+1", "1 2", "1000000", "٣", "1,", ","])
def test_reuse_counts_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="not distinct positive integers") as caught:
        parse_reuse_counts(text)
    assert caught.value.option == "--reuse-counts"
    assert caught.value.value == text
    assert caught.value.expected == "for example 1,3"


@pytest.mark.parametrize("text", ["0.45", "0.0001", "0.9999", "1e-3", ".5"])
def test_utilization(text: str) -> None:
    assert math.isclose(parse_utilization(text), float(text))


@pytest.mark.parametrize("text", ["0", "0.0", "1", "1.0", "1.01", "-1", "nan", "inf", "", "45%"])
def test_utilization_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="strictly between 0 and 1") as caught:
        parse_utilization(text)
    assert caught.value.option == "--gpu-memory-utilization"
    assert caught.value.value == text


@pytest.mark.parametrize(
    ("field", "option", "least"),
    [
        ("max_tokens", "--max-tokens", 1),
        ("seed", "--seed", 0),
        ("block_size", "--block-size", 1),
        ("max_model_len", "--max-model-len", 1),
        ("cache_gib", "--cache-gib", 1),
        ("cpu_kv_gib", "--cpu-kv-gib", 1),
    ],
)
def test_least_numbers(field: str, option: str, least: int) -> None:
    found = problem(**{field: least - 1})
    assert (found.option, found.value, found.expected) == (option, least - 1, f"{least} or more")


def test_a_chunk_of_nothing() -> None:
    assert problem(chunk_size=0).option == "--chunk-size"


@pytest.mark.parametrize(("chunk", "block"), [(100, 16), (15, 16), (33, 32), (1, 2)])
def test_a_chunk_is_whole_blocks(chunk: int, block: int) -> None:
    found = problem(chunk_size=chunk, block_size=block)
    assert (found.option, found.value) == ("--chunk-size", chunk)
    assert found.expected == f"a multiple of --block-size {block}"


def test_a_block_of_nothing_divides_nothing() -> None:
    assert problem(chunk_size=64, block_size=0).option == "--block-size"


@pytest.mark.parametrize("tenant", ["", ".a", "-a", "_a", "a/b", "a\n", "ä", "a" * 65, "a@b"])
def test_a_tenant_is_part_of_a_scope(tenant: str) -> None:
    found = problem(tenant=tenant)
    assert (found.option, found.value) == ("--tenant", tenant)


@pytest.mark.parametrize(
    ("changes", "option", "value", "expected"),
    [
        ({"suite": "all"}, "--suite", "all", "standard or smoke or acceptance"),
        ({"prompt_format": "xml"}, "--prompt-format", "xml", "raw or chat or both"),
        ({"prompt_format": ""}, "--prompt-format", "", "raw or chat or both"),
        ({"dtype": "auto"}, "--dtype", "auto", "float16 or bfloat16 or float32"),
        (
            {"accepted_deviations": ("torch", "all")},
            "--accept-deviation",
            "all",
            "torch or vllm-files or lmcache-files",
        ),
    ],
)
def test_choices(changes: dict[str, Any], option: str, value: str, expected: str) -> None:
    found = problem(**changes)
    assert (found.option, found.value, found.expected) == (option, value, expected)


def test_an_unknown_contract_comes_alone() -> None:
    assert problem(contract="lenient", suite="all").option == "--evidence-contract"


def test_an_uncovered_connector_comes_alone() -> None:
    found = problem(kv_connector="LMCacheMPConnector", suite="all")
    assert (found.option, found.remedy) == ("--kv-connector", "--evidence-contract mp")


def test_an_in_process_connector_needs_its_settings() -> None:
    found = problem(kv_connector="LMCacheConnectorV1")
    assert found.option == "--lmcache-config"
    assert found.expected == "LMCache's YAML for LMCacheConnectorV1"


def test_settings_without_a_connector() -> None:
    found = problem(lmcache_config=SETTINGS)
    assert (found.option, found.value, found.remedy) == (
        "--lmcache-config",
        "lmcache.yaml",
        "leave it out",
    )


def test_settings_beside_a_server_say_where_its_settings_are() -> None:
    found = problem(**SERVER, lmcache_config=SETTINGS)
    assert found.option == "--lmcache-config"
    assert "--chunk-size" in str(found.remedy)
    assert "--cache-gib" in str(found.remedy)


@pytest.mark.parametrize("target", [IN_PROCESS, SERVER])
def test_two_caches_at_once(target: dict[str, Any]) -> None:
    found = problem(**target, native_prefix_caching=True)
    assert found.option == "--native-prefix-caching"
    assert target["kv_connector"] in str(found.value)
    assert "--compare-native" in str(found.remedy)


@pytest.mark.parametrize("caching", [None, True, False])
def test_native_caching_is_not_compared_with_itself(caching: bool | None) -> None:
    found = problem(compare_native=True, native_prefix_caching=caching)
    assert found.option == "--compare-native"
    assert "none" in str(found.value)


@pytest.mark.parametrize("suite", ["standard", "smoke"])
def test_a_fixture_without_acceptance(suite: str) -> None:
    found = problem(suite=suite, fixture=Path("l4.json"))
    assert (found.option, found.value) == ("--fixture", "l4.json")
    assert "--suite acceptance" in str(found.remedy)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"fixture": None}, "--fixture"),
        ({"compare_native": False}, "--suite"),
        ({"kv_connector": "none", "lmcache_config": None, "compare_native": False}, "--suite"),
        ({"reuse_counts": (1,)}, "--reuse-counts, --prompt-format"),
        ({"reuse_counts": (3, 1)}, "--reuse-counts, --prompt-format"),
        ({"prompt_format": "chat"}, "--reuse-counts, --prompt-format"),
    ],
)
def test_acceptance_is_paired_and_fixed(changes: dict[str, Any], option: str) -> None:
    assert problem(**{**ACCEPTANCE, **changes}).option == option


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(OptionError, match="4 problems in this configuration") as caught:
        check(request(suite="all", seed=-1, tenant="", compare_native=True))
    for option in ("--suite", "--seed", "--tenant", "--compare-native"):
        assert f"option:   {option}" in str(caught.value)
