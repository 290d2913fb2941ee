# SPDX-License-Identifier: Apache-2.0
"""A stored result must be what its own history gives."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

from kvseal.checkers.stored import judge_again
from kvseal.verdict import Verdict

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
SPEC = build.make_spec()
HISTORY = build.history(build.passing_events(SPEC))


def stored():
    return json.loads(json.dumps(build.result(SPEC, HISTORY)))


def test_the_result_of_the_same_records_passes():
    judgement, anew = judge_again(SPEC, HISTORY, stored())
    assert judgement.verdict is Verdict.PASS
    assert anew == stored()


def test_a_result_that_was_changed_fails_and_names_the_fields():
    document = stored()
    document["snapkv"]["correct"] += 1
    document["verdict"] = "FAIL"
    judgement, anew = judge_again(SPEC, HISTORY, document)
    assert judgement.verdict is Verdict.FAIL
    assert [reason.code for reason in judgement.reasons] == ["result.differs"]
    assert judgement.reasons[0].text.endswith("in snapkv, verdict")
    assert anew == stored()


def test_a_field_too_many_or_too_few_is_a_difference():
    for document in (stored() | {"note": 1}, {k: v for k, v in stored().items() if k != "seed"}):
        assert judge_again(SPEC, HISTORY, document)[0].verdict is Verdict.FAIL


def test_a_pass_claimed_for_a_broken_run_fails():
    broken = build.history(build.passing_events(SPEC)[:-1])
    judgement, _ = judge_again(SPEC, broken, stored())
    assert judgement.verdict is Verdict.FAIL
    assert {reason.code for reason in judgement.reasons} == {"run.not_finished", "result.differs"}


def test_no_result_is_inconclusive():
    judgement, _ = judge_again(SPEC, HISTORY, None)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert [reason.code for reason in judgement.reasons] == ["result.missing"]
