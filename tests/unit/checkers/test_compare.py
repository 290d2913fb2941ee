# SPDX-License-Identifier: Apache-2.0
"""Every reason a run can be held back for: a run with that one fault has it, a sound run has none.

The faults are a table: code → what to change in the events of a passing run.
"""

import copy
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.compare import judge
from kvseal.checkers.reasons import REASONS
from kvseal.records import builders
from kvseal.verdict import Verdict

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
SPEC = build.make_spec()
EVENTS = build.passing_events(SPEC)


def one(events, name, **about):
    """The one event called `name` with these fields."""
    found = [
        event
        for event in events
        if event["event"] == name and all(event[key] == value for key, value in about.items())
    ]
    assert len(found) == 1, (name, about, len(found))
    return found[0]


def drop(name, **about):
    return lambda events: events.remove(one(events, name, **about))


def set_(fields, name, **about):
    return lambda events: one(events, name, **about).update(fields)


def append(event):
    return lambda events: events.insert(len(events) - 1, event)


def move(name, about, before, before_about):
    """Move one event to just before another."""

    def change(events):
        event = one(events, name, **about)
        events.remove(event)
        events.insert(events.index(one(events, before, **before_about)), event)

    return change


def both(*changes):
    def change(events):
        for step in changes:
            step(events)

    return change


SNAP = {"arm": "snapkv", "index": 1}
BASE = {"arm": "baseline", "index": 1}
IDS = one(EVENTS, "answer", **SNAP)["output_token_ids"]
POSITIONS = one(EVENTS, "transform", index=1)["retained_positions"]


def retained(positions):
    """Replace prompt 1's compaction by a sound record of other positions."""

    def change(events):
        transform = one(events, "transform", index=1)
        transform.update(
            builders.transform(
                index=1, source_tokens=build.SOURCE, tail_tokens=build.TAIL,
                retained_positions=positions, retained_token_ids=positions, layout="cpu-vec",
                transform_seconds=0, retrieve_seconds=0, store_seconds=0,
                stored_tokens=len(positions),
            )
        )  # fmt: skip
        count = len(positions)
        one(events, "answer", **SNAP).update(
            prompt_tokens=count + build.TAIL, expected_hit_tokens=count,
            hit_tokens_server=count, hit_tokens_vllm=count,
        )  # fmt: skip

    return change


def reference(ids, first, margin=None):
    fields = {"output_token_ids": ids, "first_difference": first, "top2_margin": margin}
    return set_(fields, "reference", index=1)


FAULTS = {
    "run.not_started": drop("run_started"),
    "run.spec_differs": set_({"spec_sha256": "a" * 64}, "run_started"),
    "run.not_finished": drop("run_finished"),
    "run.interrupted": append(builders.interrupted(signal="SIGINT")),
    "run.error": append(builders.error(where="store", message="refused")),
    "run.environment_missing": drop("environment"),
    "run.engines_missing": drop("engines_started"),
    "run.event_repeated": append(one(EVENTS, "environment")),
    "cache.not_cleared": drop("cache_cleared", before_arm="snapkv"),
    "cache.not_empty": set_({"objects_after": 3}, "cache_cleared", before_arm="baseline"),
    "cache.cleared_late": move("cache_cleared", {"before_arm": "baseline"}, "answer", BASE),
    "arms.interleaved": move("answer", {"arm": "baseline", "index": 3}, "answer", SNAP),
    "prompt.unexpected": append(
        builders.prompt(index=9, dataset="needle", token_ids=[9], expected=["1"], kind="needle")
    ),
    "prompt.missing": drop("prompt", index=1),
    "prompt.length": both(
        set_({"prompt_tokens": 269}, "prompt", index=1),
        set_({"prompt_tokens": 269}, "answer", **BASE),
        set_({"tail_tokens": build.TAIL + 1}, "transform", index=1),
        set_({"prompt_tokens": build.RETAINED + build.TAIL + 1}, "answer", **SNAP),
    ),
    "prompt.repeated": set_(
        {"prompt_token_ids_sha256": one(EVENTS, "prompt", index=0)["prompt_token_ids_sha256"]},
        "prompt",
        index=1,
    ),
    "prompt.kind_unknown": set_({"question_kind": "riddle"}, "prompt", index=1),
    "transform.missing": drop("transform", index=1),
    "transform.out_of_order": move("transform", {"index": 1}, "cache_cleared",
                                   {"before_arm": "snapkv"}),
    "transform.lengths": both(
        set_({"tail_tokens": build.TAIL + 1}, "transform", index=1),
        set_({"prompt_tokens": build.RETAINED + build.TAIL + 1}, "answer", **SNAP),
    ),
    "transform.digest": set_({"retained_positions_sha256": "b" * 64}, "transform", index=1),
    "transform.store_short": set_({"stored_tokens": 0}, "transform", index=1),
    "transform.positions": set_({"retained_positions": [*POSITIONS[:-1], POSITIONS[-2]]},
                                "transform", index=1),
    "transform.window_dropped": retained([0, 1, 2, 3, *POSITIONS[4:-1]]),
    "transform.retained_share": retained(list(range(build.SOURCE))),
    "reference.missing": drop("reference", index=1),
    "reference.incomplete": reference(IDS[:2], 2),
    "reference.contradicts": reference(IDS, 1),
    "reference.near_tie": reference([*IDS[:1], 99, 98], 1, 9e-4),
    "reference.differs": reference([*IDS[:1], 99, 98], 1, 1e-3),
    "baseline.answer_missing": drop("answer", **BASE),
    "snapkv.answer_missing": drop("answer", **SNAP),
    "baseline.answer_empty": set_({"output_token_ids": []}, "answer", **BASE),
    "snapkv.answer_empty": both(
        set_({"output_token_ids": []}, "answer", **SNAP), reference([], None)
    ),
    "baseline.prompt_length": set_({"prompt_tokens": 267}, "answer", **BASE),
    "snapkv.prompt_length": set_({"prompt_tokens": 268}, "answer", **SNAP),
    "baseline.hit_expectation": set_(
        {"expected_hit_tokens": 64, "hit_tokens_server": 64, "hit_tokens_vllm": 64},
        "answer", **BASE,
    ),
    "snapkv.hit_expectation": set_(
        {"expected_hit_tokens": 0, "hit_tokens_server": 0, "hit_tokens_vllm": 0}, "answer", **SNAP
    ),
    "baseline.hit_unknown": set_({"hit_tokens_vllm": None}, "answer", **BASE),
    "snapkv.hit_unknown": set_({"hit_tokens_server": None}, "answer", **SNAP),
    "baseline.hit_missing": set_({"hit_tokens_server": 0}, "answer", **BASE),
    "snapkv.hit_missing": set_({"hit_tokens_vllm": 0}, "answer", **SNAP),
    "baseline.hit_differs": set_({"hit_tokens_vllm": 192}, "answer", **BASE),
    "snapkv.hit_differs": set_({"hit_tokens_server": 256}, "answer", **SNAP),
}  # fmt: skip

# Faults whose records unavoidably break a second rule, which must then be named too.
ALSO = {
    "run.interrupted": set(),
    "prompt.missing": set(),
    "prompt.unexpected": {
        "prompt.length", "transform.missing", "baseline.answer_missing", "snapkv.answer_missing",
        "reference.missing",
    },
    "transform.positions": set(),
    "snapkv.answer_missing": set(),
}  # fmt: skip

ELSEWHERE = {"run.truncated", "result.missing", "result.differs"}
"""Not faults of events: tested below and in test_stored.py."""


def judged(change, spec=SPEC):
    events = copy.deepcopy(build.passing_events(spec))
    change(events)
    return judge(spec, build.history(events))


def test_the_table_of_faults_is_complete():
    assert set(FAULTS) | ELSEWHERE == set(REASONS)


def test_a_sound_run_passes_without_a_reason():
    judgement = judged(lambda events: None)
    assert judgement.verdict is Verdict.PASS
    assert judgement.reasons == ()
    assert [row.verdict for row in judgement.rows] == [Verdict.PASS] * 4


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_is_found_under_its_code_alone(code):
    judgement = judged(FAULTS[code])
    assert {reason.code for reason in judgement.reasons} == {code} | ALSO.get(code, set())
    assert judgement.verdict is REASONS[code][0]
    assert all("{" not in reason.text for reason in judgement.reasons)


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_of_one_prompt_leaves_the_others_alone(code):
    judgement = judged(FAULTS[code])
    held = {row.index for row in judgement.rows if row.verdict is not Verdict.PASS}
    assert held == {reason.index for reason in judgement.reasons} & {
        row.index for row in judgement.rows
    }
    assert held <= {1, 9}


@pytest.mark.parametrize("code", sorted(code for code in FAULTS if ".hit_" in code))
def test_an_answer_with_an_unproven_hit_enters_no_figure(code):
    arm = code.split(".")[0]
    document = judged(FAULTS[code]).to_json()
    assert document[arm]["total"] == 3
    assert document[arm]["not_counted"] == 1
    assert document["comparison"]["pairs"] == 3
    assert document["prompts"][1][arm]["counted"] is False


@pytest.mark.parametrize("code", ["cache.not_cleared", "arms.interleaved"])
def test_an_arm_on_an_unproven_cache_has_no_figures(code):
    document = judged(FAULTS[code]).to_json()
    assert document["snapkv"]["total"] == 0
    assert document["snapkv"]["accuracy"] is None
    assert document["comparison"]["output_tput_ratio"] is None


def test_a_truncated_history_is_inconclusive():
    judgement = judge(SPEC, build.history(EVENTS, truncated=True))
    assert [reason.code for reason in judgement.reasons] == ["run.truncated"]
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_an_empty_history_is_inconclusive():
    assert judge(SPEC, build.history([])).verdict is Verdict.INCONCLUSIVE


def test_a_wrong_answer_moves_no_verdict():
    wrong = set_({"text": "no idea"}, "answer", **SNAP)
    judgement = judged(wrong)
    assert judgement.verdict is Verdict.PASS
    assert judgement.to_json()["snapkv"]["correct"] == 2


def test_one_failure_outranks_any_number_of_unknowns():
    judgement = judged(both(FAULTS["reference.differs"], FAULTS["run.not_finished"]))
    assert judgement.verdict is Verdict.FAIL


def test_without_the_witness_none_is_missed():
    spec = build.make_spec(snapkv={"reference": False})
    assert judged(lambda events: None, spec).verdict is Verdict.PASS


def test_an_unknown_margin_is_no_tie():
    judgement = judged(reference([*IDS[:1], 99, 98], 1, None))
    assert [reason.code for reason in judgement.reasons] == ["reference.differs"]


@pytest.mark.parametrize(
    ("dtype", "tie", "difference"),
    [("float32", 9e-4, 1.1e-3), ("float16", 0.024, 0.026), ("bfloat16", 0.24, 0.26)],
)
def test_what_rounding_can_turn_depends_on_the_engine(dtype, tie, difference):
    spec = build.make_spec(vllm={"dtype": dtype})
    for margin, code in ((tie, "reference.near_tie"), (difference, "reference.differs")):
        judgement = judged(reference([*IDS[:1], 99, 98], 1, margin), spec)
        assert [reason.code for reason in judgement.reasons] == [code]


def test_a_disputed_reference_still_counts_as_a_hit():
    assert judged(FAULTS["reference.near_tie"]).to_json()["snapkv"]["total"] == 4


def test_a_cold_baseline_is_as_good_as_a_warm_one():
    cold = {"expected_hit_tokens": 0, "hit_tokens_server": 0, "hit_tokens_vllm": 0}
    assert judged(set_(cold, "answer", **BASE)).verdict is Verdict.PASS


def test_a_repeated_answer_counts_for_neither():
    judgement = judged(append(one(EVENTS, "answer", **SNAP)))
    assert {reason.code for reason in judgement.reasons} == {
        "run.event_repeated", "snapkv.answer_missing",
    }  # fmt: skip
    assert judgement.to_json()["snapkv"]["total"] == 3


def test_prompts_of_a_file_have_their_own_lengths():
    spec = build.make_spec(
        workload={"datasets": ["needle"], "dataset_file": "/d.jsonl", "prompt_tokens": 32}
    )
    events = build.passing_events(SPEC)
    one(events, "run_started")["spec_sha256"] = spec.sha256()
    assert judge(spec, build.history(events)).verdict is Verdict.PASS
