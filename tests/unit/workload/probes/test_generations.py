# SPDX-License-Identifier: Apache-2.0
"""The budgets of the suites, and that a control is repeated whatever the reuse counts."""

import pytest

from kvseal.errors import EvidenceError
from kvseal.workload.probes import control_repetitions, planned_generations


def test_the_documented_budgets(build, l4_rows):
    standard, smoke = build(), build("smoke")
    acceptance = build("acceptance", lengths=l4_rows)
    assert planned_generations("standard", standard, ["native"]) == {
        "control": 24,
        "native": 72,
        "total": 96,
    }
    assert planned_generations("smoke", smoke, ["mp"])["total"] == 24
    assert planned_generations("acceptance", acceptance, ["lmcache", "native"]) == {
        "control": 4,
        "lmcache": 10,
        "native": 10,
        "total": 24,
    }
    assert [len(probes) for probes in (standard, smoke, acceptance)] == [24, 6, 4]


@pytest.mark.parametrize("counts", [(1,), (3,), (1, 3), (2, 4, 6)])
def test_each_prompt_has_two_control_answers_or_more(build, counts):
    probes = build("smoke", reuse_counts=counts)
    asked = control_repetitions("smoke", probes)
    assert set(asked) == {probe.id for probe in probes}
    for prompt in {probe.prompt for probe in probes}:
        mine = [asked[probe.id] for probe in probes if probe.prompt == prompt]
        assert sum(mine) == max(2, len(counts))
    assert planned_generations("smoke", probes, ())["total"] == sum(asked.values())


@pytest.mark.parametrize("targets", [["control"], ["native", "native"], ["nativ"]])
def test_a_target_that_is_none_or_comes_twice_is_refused(build, targets):
    with pytest.raises(EvidenceError):
        planned_generations("smoke", build("smoke"), targets)
