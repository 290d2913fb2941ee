# SPDX-License-Identifier: Apache-2.0
"""Each rule of prompts and compaction: what must pass beside what must fail."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec.options import LMCACHE_SNAPKV
from kvseal.spec.workload_rules import cached_prefix_tokens

symbol = LMCACHE_SNAPKV.symbol


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        ({"DATASET_FILE": "/d"}, {"NEEDLE": False}, "NEEDLE"),
        (
            {"DATASET_HUB": "o/d", "DATASET_REVISION": "d" * 40},
            {"DATASET_HUB": "o/d", "DATASET_REVISION": "main"},
            "DATASET_REVISION",
        ),
        (
            {"DATASET_FILE": "/d"},
            {"DATASET_FILE": "/d", "DATASET_HUB": "o/d", "DATASET_REVISION": "d" * 40},
            "DATASET_FILE",
        ),
        ({"PROMPT_TOKENS": 2032}, {"PROMPT_TOKENS": 2033}, "MAX_MODEL_LEN"),
        ({"WINDOW_SIZE": 511}, {"WINDOW_SIZE": 512}, "WINDOW_SIZE"),
        ({"WINDOW_SIZE": 64}, {"WINDOW_SIZE": 1024}, "WINDOW_SIZE"),
        ({"DROP_PERCENT": 7}, {"DROP_PERCENT": 6}, "DROP_PERCENT"),
        ({"DROP_PERCENT": 99, "WINDOW_SIZE": 10}, {"DROP_PERCENT": 99}, "WINDOW_SIZE"),
        ({"KERNEL_SIZE": 1}, {"KERNEL_SIZE": 2}, "KERNEL_SIZE"),
    ],
)
def test_rule(spec_with, good, bad, name):
    assert spec_with(**good)
    with pytest.raises(OptionError) as caught:
        spec_with(**bad)
    assert caught.value.option == symbol(name)
    assert caught.value.expected and caught.value.remedy


@pytest.mark.parametrize("percent", [0, 100])
def test_dropping_nothing_or_all_is_refused(spec_with, percent):
    with pytest.raises(OptionError, match=symbol("DROP_PERCENT")):
        spec_with(DROP_PERCENT=percent)


def test_prompt_no_longer_than_a_chunk_is_refused(spec_with):
    with pytest.raises(OptionError, match="shorter than a chunk") as caught:
        spec_with(PROMPT_TOKENS=64)
    assert caught.value.option == symbol("PROMPT_TOKENS")


def test_remedy_of_a_drop_too_small_works(spec_with):
    """The percent that the message names is the least that is accepted."""
    with pytest.raises(OptionError) as caught:
        spec_with(DROP_PERCENT=1)
    least = int(caught.value.expected.split()[2])
    assert spec_with(DROP_PERCENT=least)
    with pytest.raises(OptionError):
        spec_with(DROP_PERCENT=least - 1)


@pytest.mark.parametrize(
    ("prompt", "chunk", "cached"),
    [(1, 64, 0), (64, 64, 0), (65, 64, 64), (128, 64, 64), (129, 64, 128), (1089, 64, 1088)],
)
def test_cached_prefix(prompt, chunk, cached):
    assert cached_prefix_tokens(prompt, chunk) == cached
