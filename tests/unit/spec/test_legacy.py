# SPDX-License-Identifier: Apache-2.0
"""Symbols of KNLP and kdevops become ours exactly, or are refused; never approximately."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec import legacy
from kvseal.spec.options import LMCACHE_SNAPKV

ROOT = LMCACHE_SNAPKV.root


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("KNLP_LMCACHE_SNAPKV", "y", [("", "y")]),
        ("KNLP_SNAPKV_DROP_RATIO", '"0.5"', [("DROP_PERCENT", "50")]),
        ("KNLP_SNAPKV_DROP_RATIO", '"0.29"', [("DROP_PERCENT", "29")]),
        ("KNLP_SNAPKV_GPU_MEMORY_UTILIZATION", '"0.35"', [("GPU_MEMORY_PERCENT", "35")]),
        ("KNLP_SNAPKV_L1_SIZE_GB", '"3"', [("L1_SIZE_GB", "3")]),
        ("KNLP_SNAPKV_L1_SIZE_GB", '"3.0"', [("L1_SIZE_GB", "3")]),
        ("KNLP_SNAPKV_PYTHON", '"python3.12"', [("PYTHON", '"3.12"')]),
        ("KNLP_SNAPKV_MODEL", '"a/b"', [("MODEL", '"a/b"')]),
        ("KNLP_SNAPKV_LMCACHE_REF", '"dev"', [("LMCACHE_REF", '"dev"'), ("LMCACHE_FROM_GIT", "y")]),
        (f"{ROOT}_CUDA_DEVICES", '"1"', [("CUDA_VISIBLE_DEVICES", '"1"')]),
    ],
)
def test_translation(name, value, expected):
    translation = legacy.translate(name, value, place="profile:3")
    assert list(translation.assignments) == [
        (LMCACHE_SNAPKV.symbol(to).removeprefix("CONFIG_"), what) for to, what in expected
    ]
    assert translation.notice.startswith(f"profile:3: CONFIG_{name} read as CONFIG_")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KNLP_SNAPKV_DROP_RATIO", '"0.555"'),
        ("KNLP_SNAPKV_DROP_RATIO", '"half"'),
        ("KNLP_SNAPKV_DROP_RATIO", '"NaN"'),
        ("KNLP_SNAPKV_L1_SIZE_GB", '"1.5"'),
        ("KNLP_SNAPKV_L1_SIZE_GB", '"Infinity"'),
    ],
)
def test_no_exact_counterpart(name, value):
    with pytest.raises(OptionError, match="can't be translated") as caught:
        legacy.translate(name, value, place="profile:3")
    assert caught.value.option == f"CONFIG_{name}"
    assert ROOT in caught.value.remedy


def test_gate_of_kdevops_is_left_out():
    translation = legacy.translate("KDEVOPS_USER_WORKFLOW_KNLP", "y", place="p:1")
    assert translation.assignments == () and "left out" in translation.notice


def test_others_are_not_foreign_but_unknown():
    assert legacy.translate("KNLP_SNAPKV_DORP_RATIO", '"0.5"', place="p:1") is None


def test_all_that_is_known_translates_to_options():
    values = {"DROP_RATIO": '"0.5"', "UTILIZATION": '"0.5"', "SIZE_GB": '"1"'}
    for name in legacy.known():
        value = next((v for end, v in values.items() if name.endswith(end)), '"x"')
        for symbol, _ in legacy.translate(name, value, place="p:1").assignments:
            assert symbol in {option.symbol for option in LMCACHE_SNAPKV.options}
