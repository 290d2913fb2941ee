# SPDX-License-Identifier: Apache-2.0
"""All parts of the rules are asked, all problems come together, and paths are safe to hand on."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec import rules
from kvseal.spec.options import LMCACHE_SNAPKV, WORKFLOWS

symbol = LMCACHE_SNAPKV.symbol


def test_sound_spec_has_no_problems(any_with):
    assert rules.problems(any_with()) == []


def test_problems_of_every_part_come_together(spec_with):
    with pytest.raises(OptionError) as caught:
        spec_with(DROP_PERCENT=0, DTYPE="float16", KERNEL_SIZE=4, WORK_ROOT='/a"b')
    text = str(caught.value)
    for name in ("DROP_PERCENT", "DTYPE", "KERNEL_SIZE", "WORK_ROOT"):
        assert symbol(name) in text
    assert text.startswith("4 problems")
    assert text.count("remedy:") == 4


def test_problems_of_a_verification_come_together(verify_with):
    with pytest.raises(OptionError) as caught:
        verify_with(
            REUSE_COUNTS="0",
            DTYPE="float16",
            CONTRACT="strict",
            SUITE="all",
            WORK_ROOT='/a"b',
            MODEL_REVISION="main",
            FIXTURE="f",
            ACCEPT_DEVIATIONS="gpu",
        )
    text = str(caught.value)
    for name in ("REUSE_COUNTS", "DTYPE", "CONTRACT", "CONNECTOR", "SUITE", "WORK_ROOT",
                 "MODEL_REVISION", "FIXTURE", "ACCEPT_DEVIATIONS"):  # fmt: skip
        assert WORKFLOWS["kv-reuse"].symbol(name) in text
    assert text.startswith("9 problems")
    assert text.count("remedy:") == text.count("expected:") == 9


def test_one_problem_is_raised_as_it_is():
    problem = OptionError("one")
    with pytest.raises(OptionError) as caught:
        rules.refuse([problem])
    assert caught.value is problem
    rules.refuse([])


@pytest.mark.parametrize("path", ["/a\nb", "/a\tb", '/a"b', "/a\\b", "/a\n"])
def test_unsafe_path_is_refused(any_with, path):
    with pytest.raises(OptionError, match="RESULTS_ROOT"):
        any_with(RESULTS_ROOT=path)


def test_path_with_space_is_fine(spec_with):
    assert spec_with(RESULTS_ROOT="/a b/c").roots.results == "/a b/c"


def test_work_and_results_apart(any_with):
    with pytest.raises(OptionError, match="share a folder"):
        any_with(WORK_ROOT="x", RESULTS_ROOT="./x")
