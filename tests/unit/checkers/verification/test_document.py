# SPDX-License-Identifier: Apache-2.0
"""Every reason that keeps a run from passing: a run with that one fault has it, a sound run none.

The faults are a table: code → what to change in the events of a passing run.
"""

import copy
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.checkers.verification.reasons import DIFFERS, REASONS
from kvseal.records import verification as new
from kvseal.records.schemas import validate

SCHEMA = "efim.kv-reuse-verification.v1"
build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
one, answer_of, give = build.one, build.answer_of, build.give
EVENTS = build.passing_events()
ONCE, TWICE, TINY = (probe.id for probe in build.PROBES)
OTHER = build.probe(700, 1)


def put(fields, name, **about):
    return lambda events: one(events, name, **about).update(fields)


def drop(name, **about):
    return lambda events: events.remove(one(events, name, **about))


def append(event):
    return lambda events: events.insert(len(events) - 1, event)


def move(name, about, before, before_about):
    """Move one event to just before another."""

    def change(events):
        event = one(events, name, **about)
        events.remove(event)
        events.insert(events.index(one(events, before, **before_about)), event)

    return change


def at(target, probe, kind, repetition=0, *token_ids, **fields):
    """Change one answer: its tokens where some are given, and other fields."""

    def change(events):
        event = answer_of(events, target, probe, kind, repetition)
        if token_ids:
            give(event, *token_ids)
        event.update(fields)

    return change


def shifted(target, probe, kind, repetition=0, by=0.25):
    """Move the log-probabilities of one answer further than float16 rounds."""
    return lambda events: build.shift(answer_of(events, target, probe, kind, repetition), by)


def both(*changes):
    def change(events):
        for step in changes:
            step(events)

    return change


def set_in(name, field, **values):
    def change(events):
        event = one(events, name)
        event[field] = event[field] | values

    return change


def near_tie(target, probe):
    """Make the control's second choice at token 1 as good as its first."""

    def change(events):
        events_of = answer_of(events, target, probe, "control")
        events_of["top2"] = build.top2(events_of["token_ids"], build.FIRST - 0.02)

    return change


def key(target="lmcache", probe=ONCE, kind="reuse", repetition=1):
    return {"target": target, "probe": probe, "kind": kind, "repetition": repetition}


DEVIATION = {"what": "torch", "expected": "2.13.0", "found": "2.11.0"}
LEFT_OUT = drop("answer", **key())
SWAPPED = (11, 112, 13, 14)
"""The true answer with the control's second choice at token 1."""

FAULTS = {
    "run.not_started": None,  # below: nothing can be expected without it
    "run.request_incomplete": set_in("verification_started", "request", max_tokens="many"),
    "run.environment_missing": drop("environment"),
    "run.manifest_missing": None,
    "run.manifest_wrong": None,
    "run.plan_differs": set_in("manifest", "generations_planned", control=3, total=17),
    "run.event_repeated": append(one(EVENTS, "environment")),
    "run.out_of_order": move("environment", {}, "verification_started", {}),
    "run.error": append(new.error(where="start", message="no GPU")),
    "run.interrupted": append(new.interrupted(signal="SIGINT")),
    "run.truncated": None,
    "run.not_finished": drop("verification_finished"),
    "contract.not_accepted": set_in("verification_started", "contract", deviations=[DEVIATION]),
    "acceptance.unusable": set_in("verification_started", "request", fixture={"document": {}}),
    "target.not_started": None,
    "target.not_finished": drop("target_finished", target="lmcache"),
    "target.status": put({"status": None}, "target_finished", target="lmcache"),
    "target.error": append(new.error(where="ask", message="lost", target="lmcache")),
    "target.disqualified": append(new.disqualified(target="lmcache", reason="recompute")),
    "target.unexpected": append(new.engine_warning(target="mp", line="?")),
    "target.overlaps": move("target_started", {"target": "lmcache"}, "target_finished",
                            {"target": "native"}),
    "target.nothing_reused": None,
    "probe.incomplete": LEFT_OUT,
    "probe.not_completed": drop("probe_completed", target="lmcache", probe=ONCE),
    "probe.unexpected": append(new.engine_warning(target="native", probe="x", line="?")),
    "probe.no_control": drop("answer", **key("control", ONCE, "control", 0)),
    "answer.missing": both(LEFT_OUT, append(new.answer_missing(**key(), reason="timeout"))),
    "answer.repeated": append(answer_of(EVENTS, "lmcache", ONCE, "reuse", 1)),
    "answer.unexpected": lambda events: events.insert(
        events.index(one(events, "probe_completed", target="lmcache", probe=ONCE)),
        build.answer("lmcache", build.PAIR[0], "reuse", 1) | {"repetition": 2},
    ),
    "answer.prompt_differs": at("lmcache", ONCE, "reuse", 1, prompt_token_ids_sha256="a" * 64),
    "answer.out_of_order": move("answer", key(), "answer", key(kind="cold", repetition=0)),
    "answer.empty": at("lmcache", ONCE, "reuse", 1, token_ids=[], top2=[]),
    "answer.unfinished": at("lmcache", ONCE, "reuse", 1, 11, 12, finish_reason="abort"),
    "answer.length": at("lmcache", ONCE, "reuse", 1, *build.ANSWER, 15),
    "control.drifts": at("control", TINY, "control", 1, *SWAPPED),
    "control.cached": at("control", ONCE, "control", 0, cached_tokens=16),
    "hits.unknown": at("lmcache", ONCE, "reuse", 1, cached_tokens=None),
    "hits.zero": at("lmcache", ONCE, "reuse", 1, cached_tokens=0),
    "hits.differ": at("lmcache", ONCE, "reuse", 1, cached_tokens=256),
    "hits.not_cold": at("lmcache", ONCE, "cold", 0, cached_tokens=256),
    "hits.server_unknown": None,
    "hits.server_differ": None,
    "difference.near_tie": both(near_tie("control", ONCE),
                                at("lmcache", ONCE, "reuse", 1, *SWAPPED)),
    "difference.second_witness": both(at("lmcache", ONCE, "reuse", 1, 11, 7, 8, 9),
                                      at("native", ONCE, "reuse", 1, 11, 7, 13, 14)),
    "difference.without_reuse": at("lmcache", ONCE, "cold", 0, 11, 7, 8, 9),
    "difference.like_cold": both(at("lmcache", ONCE, "cold", 0, 11, 7, 8, 9),
                                 at("lmcache", ONCE, "reuse", 1, 11, 7, 8, 9)),
    "difference.hidden": shifted("lmcache", ONCE, "reuse", 1),
    DIFFERS: at("lmcache", ONCE, "reuse", 1, 11, 7, 13, 14),
}  # fmt: skip

# Faults whose records unavoidably break a second rule, which must then be named too.
ALSO = {
    "probe.no_control": {"probe.incomplete"},
    "answer.missing": {"probe.incomplete"},
    "answer.repeated": {"probe.incomplete"},
    "answer.length": {DIFFERS},
    "control.drifts": {"probe.no_control"},
    "control.cached": {"probe.no_control"},
    "difference.second_witness": {DIFFERS},  # native's own
    "difference.like_cold": {"difference.without_reuse"},
}

TABLE = {code: change for code, change in FAULTS.items() if change is not None}
FAILING = {code for code in TABLE if DIFFERS in {code, *ALSO.get(code, ())}}


def judged(*changes, events=EVENTS, truncated=False):
    events = copy.deepcopy(events)
    for change in changes:
        change(events)
    return build.report(events, truncated)


def codes(report):
    return {entry["code"] for entry in report["reasons"]}


def test_the_table_of_faults_is_complete():
    assert set(FAULTS) == set(REASONS)


def test_a_sound_run_passes_without_a_reason():
    report = judged()
    validate(report, SCHEMA)
    assert report["verdict"] == "PASS"
    assert report["exit_status"] == 0
    assert report["reuse_tested"] is True
    assert report["claim_eligible"] is False
    assert report["complete"] is True
    assert report["reasons"] == report["notes"] == []
    assert [(target["target"], target["verdict"]) for target in report["targets"]] == [
        ("native", "pass"), ("lmcache", "pass"),
    ]  # fmt: skip
    assert report["control"]["verdict"] == "control_match"
    assert report["generations"]["planned"] == report["generations"]["completed"]
    assert report["generations"]["planned"]["total"] == 18


@pytest.mark.parametrize("code", TABLE)
def test_each_fault_is_found_under_its_code_alone(code):
    report = judged(TABLE[code])
    validate(report, SCHEMA)
    assert codes(report) == {code} | ALSO.get(code, set())
    assert report["verdict"] == ("FAIL" if code in FAILING else "INCONCLUSIVE")
    assert report["exit_status"] == (1 if code in FAILING else 2)
    assert all("{" not in entry["text"] for entry in report["reasons"])
    # Whatever is said of a target or of one of its probes shows in its own verdict.
    blamed = {entry["target"]: entry["probe"] for entry in report["reasons"]}
    for target in (report["control"], *report["targets"]):
        if target["target"] in blamed:
            assert target["verdict"] in ("fail", "inconclusive")
        for probe in target["probes"]:
            if (target["target"], probe["probe"]) in blamed.items():
                assert probe["verdict"] in ("fail", "inconclusive")


ABOUT_LMCACHE = [
    code for code in TABLE
    if code.startswith(("answer.", "hits.", "difference.")) and code != "difference.second_witness"
]  # fmt: skip


@pytest.mark.parametrize("code", ABOUT_LMCACHE)
def test_a_fault_of_one_probe_leaves_the_others_alone(code):
    report = judged(TABLE[code])
    assert {entry["target"] for entry in report["reasons"]} == {"lmcache"}
    assert {entry["probe"] for entry in report["reasons"]} == {ONCE}
    native, lmcache = report["targets"]
    assert native["verdict"] == "pass"
    assert lmcache["verdict"] == ("fail" if code in FAILING else "inconclusive")
    verdicts = {entry["probe"]: entry["verdict"] for entry in lmcache["probes"]}
    assert verdicts[TWICE] == "pass"
    assert verdicts[TINY] == "control_match"


def test_without_a_start_nothing_is_known_of_what_was_asked():
    report = judged(drop("verification_started"))
    validate(report, SCHEMA)
    assert report["verdict"] == "INCONCLUSIVE"
    assert {"run.not_started", "target.unexpected"} <= codes(report)
    assert report["targets"] == []


def test_without_probes_no_answer_belongs_anywhere():
    report = judged(drop("manifest"))
    validate(report, SCHEMA)
    assert {"run.manifest_missing", "probe.unexpected"} <= codes(report)
    assert report["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda probes: probes.clear(), "no probe"),
        (lambda probes: probes.append(probes[0]), "two probes are called"),
        (lambda probes: probes[0].update(token_ids=[1, 2]), "not the one that was recorded"),
        (lambda probes: probes[2].update(prompt=probes[0]["prompt"]), "different tokens"),
        (lambda probes: probes[0].pop("scope"), "unknown or missing fields"),
    ],
)
def test_a_manifest_that_names_no_usable_probes(damage, problem):
    def change(events):
        damage(one(events, "manifest")["probes"])

    report = judged(change)
    assert "run.manifest_wrong" in codes(report)
    assert problem in report["reasons"][0]["text"]
    assert report["verdict"] == "INCONCLUSIVE"


def test_a_geometry_that_is_none():
    assert "run.manifest_wrong" in codes(judged(put({"geometry": {}}, "manifest")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": None}, {"targets": ["native", "native"]}, {"targets": ["native", "other"]},
        {"targets": ["native", 1]}, {"suite": 1}, {"dtype": None}, {"max_tokens": 0},
        {"max_tokens": True}, {"fixture": "l4"},
    ],
)  # fmt: skip
def test_a_request_that_can_not_be_judged_by(wrong):
    report = judged(set_in("verification_started", "request", **wrong))
    assert "run.request_incomplete" in codes(report)
    assert report["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("wrong", [None, "none", ["text"]])
def test_a_contract_must_list_its_deviations(wrong):
    report = judged(set_in("verification_started", "contract", deviations=wrong))
    assert codes(report) == {"run.request_incomplete"}


def test_a_broken_last_line():
    report = judged(truncated=True)
    assert codes(report) == {"run.truncated"}
    assert report["complete"] is False


def test_an_empty_history_has_a_whole_report():
    report = build.report([])
    validate(report, SCHEMA)
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["created_at"] is None


def test_a_target_that_never_started_has_one_reason():
    def change(events):
        events[:] = [event for event in events if event.get("target") != "lmcache"]

    report = judged(change)
    assert [(entry["code"], entry["target"]) for entry in report["reasons"]] == [
        ("target.not_started", "lmcache")
    ]
    assert report["targets"][1]["verdict"] == "inconclusive"
    assert report["targets"][0]["verdict"] == "pass"


def test_a_target_that_had_nothing_to_reuse_does_not_pass():
    report = build.report(build.passing_events([build.TINY], ["lmcache"]))
    assert codes(report) == {"target.nothing_reused"}
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["reuse_tested"] is False
    (probe,) = report["targets"][0]["probes"]
    assert (probe["verdict"], probe["state"]) == ("control_match", "no_reuse_possible")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"server_hit_tokens": None}, "hits.server_unknown"),
        ({"server_hit_tokens": 256}, "hits.server_differ"),
        ({"server_hit_tokens": 0}, "hits.server_differ"),
    ],
)
def test_the_cache_server_must_confirm_the_hits(fields, code):
    events = build.passing_events(targets=["mp"])
    assert build.report(events)["verdict"] == "PASS"
    answer_of(events, "mp", ONCE, "reuse", 1).update(fields)
    report = build.report(events)
    assert codes(report) == {code}
    assert report["verdict"] == "INCONCLUSIVE"


def test_control_alone_is_no_pass_of_reuse():
    report = build.report(build.passing_events(targets=()))
    validate(report, SCHEMA)
    assert report["verdict"] == report["control"]["verdict"] == "control_only_pass"
    assert report["reuse_tested"] is False
    assert report["exit_status"] == 0


def test_control_alone_that_drifts_is_inconclusive():
    report = judged(FAULTS["control.drifts"], events=build.passing_events(targets=()))
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["exit_status"] == 2
    assert report["control"]["verdict"] == "inconclusive"


def test_a_run_that_recomputed_everything_is_no_pass():
    """The in-process connector in degraded mode: right answers, no hit."""

    def recompute(events):
        for event in events:
            if event["event"] == "answer":
                event["cached_tokens"] = 0
        append(new.disqualified(target="lmcache", reason="degraded mode (recompute)"))(events)

    report = judged(recompute, events=build.passing_events(targets=["lmcache"]))
    assert codes(report) == {"hits.zero", "target.disqualified"}
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["reuse_tested"] is False
    assert report["targets"][0]["disqualified"] == [
        {"probe": None, "reason": "degraded mode (recompute)"}
    ]


@pytest.mark.parametrize("target", ["control", "lmcache"])
def test_one_disqualified_probe(target):
    report = judged(append(new.disqualified(target=target, probe=ONCE, reason="seen")))
    assert "target.disqualified" in codes(report)
    results = {name: build.result(report, target, name)["verdict"] for name in (ONCE, TINY)}
    assert results == {ONCE: "inconclusive", TINY: "control_match"}
    # Whoever is compared with a control that does not count can't be judged by it either.
    assert build.result(report, "lmcache", ONCE)["verdict"] == "inconclusive"


def test_nothing_is_held_against_a_target_by_a_control_that_is_none():
    wrong = at("lmcache", ONCE, "reuse", 1, 11, 7, 13, 14)
    assert judged(wrong)["verdict"] == "FAIL"
    no_control = append(new.disqualified(target="control", reason="its cache was on"))
    for problem in (
        FAULTS["control.cached"],
        no_control,
        at("control", TWICE, "control", 0, *SWAPPED),
        at("control", ONCE, "control", 0, prompt_token_ids_sha256="b" * 64),
    ):
        report = judged(wrong, problem)
        assert report["verdict"] == "INCONCLUSIVE"
        answer = build.result(report, "lmcache", ONCE)["answers"][1]
        assert answer["difference"]["explanation"] == "no_control"
        assert answer["first_difference_control"] == 1


def test_a_control_that_was_not_repeated_passes_nothing_but_still_convicts():
    one_short = drop("answer", **key("control", TWICE, "control", 0))
    report = judged(one_short)
    assert build.result(report, "lmcache", ONCE)["verdict"] == "inconclusive"
    assert judged(one_short, FAULTS[DIFFERS])["verdict"] == "FAIL"


def test_an_answer_that_was_cut_off_is_no_difference_unless_its_tokens_are():
    cut = judged(at("lmcache", ONCE, "reuse", 1, 11, 12, finish_reason=None))
    assert codes(cut) == {"answer.unfinished"}
    assert cut["verdict"] == "INCONCLUSIVE"
    wrong = judged(at("lmcache", ONCE, "reuse", 1, 11, 7, finish_reason="abort"))
    assert codes(wrong) == {"answer.unfinished", DIFFERS}
    ended = judged(at("lmcache", ONCE, "reuse", 1, 11, 12, finish_reason="stop"))
    assert codes(ended) == {DIFFERS}


def test_an_answer_shorter_than_asked_for_was_cut_off_whatever_it_says():
    report = judged(at("lmcache", ONCE, "reuse", 1, 11, 12, finish_reason="length"))
    assert codes(report) == {"answer.length"}
    answer = build.result(report, "lmcache", ONCE)["answers"][1]
    assert answer["difference"]["explanation"] == "cut_short"


def test_an_answer_to_other_tokens_is_not_held_against_the_target():
    report = judged(at("lmcache", ONCE, "reuse", 1, 9, 9, 9, 9, prompt_token_ids_sha256="a" * 64))
    assert codes(report) == {"answer.prompt_differs"}
    assert report["verdict"] == "INCONCLUSIVE"
    answer = build.result(report, "lmcache", ONCE)["answers"][1]
    assert answer["difference"]["explanation"] == "other_prompt"


def test_a_control_that_was_cut_off_is_no_drift():
    report = judged(at("control", TINY, "control", 1, 11, finish_reason="abort"))
    assert codes(report) == {"answer.unfinished", "probe.no_control"}


@pytest.mark.parametrize(
    "change",
    [
        move("answer", key("native", ONCE, "cold", 0), "target_started", {"target": "native"}),
        move("answer", key("lmcache", TINY, "reuse", 1), "verification_finished", {}),
    ],
)
def test_an_answer_outside_the_life_of_its_engine_is_out_of_order(change):
    assert codes(judged(change)) == {"answer.out_of_order"}


def test_a_control_that_ends_by_itself_is_compared_like_any_other():
    def change(events):
        for event in events:
            if event["event"] == "answer":
                give(event, 11, 12, finish_reason="stop")

    assert judged(change)["verdict"] == "PASS"


def test_a_second_prompt_of_a_pair_finds_the_common_prefix():
    first = build.probe(700, 1, scope="pair")
    second = build.probe(720, 1, scope="pair", cold_prefix_tokens=600)
    events = build.passing_events([first, second], ["native", "lmcache", "mp"])
    assert build.report(events)["verdict"] == "PASS"
    hits = {name: answer_of(events, name, second.id, "cold")["cached_tokens"]
            for name in ("native", "lmcache", "mp")}  # fmt: skip
    assert hits == {"native": 592, "lmcache": 512, "mp": 512}
    answer_of(events, "lmcache", second.id, "cold")["cached_tokens"] = 0
    assert codes(build.report(events)) == {"hits.not_cold"}
    # A cold answer that did take KV from its partner is reuse like any other.
    wrong = build.passing_events([first, second], ["lmcache"])
    give(answer_of(wrong, "lmcache", second.id, "cold"), 11, 7, 8, 9)
    assert codes(build.report(wrong)) == {DIFFERS}


def test_the_acceptance_suite_asks_its_control_once():
    events = build.passing_events([build.TINY, build.PAIR[0]], suite="acceptance")
    assert build.report(events)["verdict"] == "PASS"
    assert build.report(events)["generations"]["planned"]["control"] == 2


def test_accepted_deviations_are_notes_beside_the_verdict():
    report = judged(
        set_in("verification_started", "contract", deviations=[DEVIATION]),
        set_in("verification_started", "request", accepted_deviations=["torch"]),
    )
    assert report["verdict"] == "PASS"
    assert report["notes"] == [
        {
            "code": "contract.deviation",
            "text": "accepted deviation from the contract: torch: expected 2.13.0, found 2.11.0",
        }
    ]


def test_the_report_keeps_the_evidence():
    report = judged(append(new.engine_warning(target="lmcache", probe=ONCE, line="WARN x")))
    assert report["verdict"] == "PASS"  # a warning alone is evidence, no judgement
    lmcache = report["targets"][1]
    assert lmcache["warnings"] == [{"probe": ONCE, "line": "WARN x"}]
    assert lmcache["engine"] == {"target": "lmcache"}
    assert lmcache["process_status"] == 0
    assert report["evidence"] == {
        "directory": "/e/run",
        "logs": {name: f"logs/{name}.log" for name in ("control", "native", "lmcache")},
    }
    assert report["environment"]["gpu"] == {"name": "L4", "capability": "8.9"}
    assert report["probes"][0]["token_ids"] == list(build.PAIR[0].token_ids)
    answers = build.result(report, "lmcache", TWICE)["answers"]
    assert [(entry["kind"], entry["repetition"]) for entry in answers] == [
        ("cold", 0), ("reuse", 1), ("reuse", 2),
    ]  # fmt: skip
    assert [entry["cached_tokens"] for entry in answers] == [0, 512, 512]
    assert all(entry["token_ids"] == list(build.ANSWER) for entry in answers)
    assert all(entry["equal_control"] is True for entry in answers)
    assert [entry["equal_cold"] for entry in answers] == [None, True, True]
    assert all(entry["largest_logprob_difference"] == 0 for entry in answers)


def test_a_difference_is_told_with_its_index_tokens_and_margin():
    report = judged(FAULTS[DIFFERS])
    answer = build.result(report, "lmcache", ONCE)["answers"][1]
    assert answer["equal_control"] is False
    assert answer["first_difference_control"] == answer["first_difference_cold"] == 1
    assert answer["difference"] == {
        "index": 1, "control_token": 12, "token": 7, "margin": 1.0, "explanation": None,
    }  # fmt: skip
    (entry,) = report["reasons"]
    assert entry["text"] == (
        "reusing answer 1 takes 7 instead of 12 at token 1 (the control's two best are 1 apart "
        "there)"
    )


def test_equal_tokens_from_other_kv_are_no_pass_and_no_failure():
    report = judged(FAULTS["difference.hidden"])
    answer = build.result(report, "lmcache", ONCE)["answers"][1]
    assert answer["equal_control"] is True
    assert answer["difference"] is None
    assert answer["largest_logprob_difference"] == 0.25
    (entry,) = report["reasons"]
    assert entry["text"].startswith("reusing answer 1 has the control's tokens, but")
    assert "moved by 0.25" in entry["text"]
    assert "float16 moves them by 0.1 at most" in entry["text"]
    assert judged(shifted("lmcache", ONCE, "reuse", 1, by=-0.09))["verdict"] == "PASS"


@pytest.mark.parametrize("kind", ["cold", "reuse"])
@pytest.mark.parametrize("target", ["native", "lmcache"])
def test_every_answer_of_every_target_is_looked_at(target, kind):
    report = judged(shifted(target, TWICE, kind, 2 if kind == "reuse" else 0))
    assert [(e["code"], e["target"], e["probe"]) for e in report["reasons"]] == [
        ("difference.hidden", target, TWICE)
    ]
    assert report["exit_status"] == 2


@pytest.mark.parametrize(("dtype", "passes"), [("float16", False), ("bfloat16", True)])
def test_the_bound_is_that_of_the_run_s_dtype(dtype, passes):
    events = build.passing_events(dtype=dtype)
    build.shift(answer_of(events, "lmcache", ONCE, "reuse", 1), 0.25)
    assert (build.report(events)["verdict"] == "PASS") is passes


@pytest.mark.parametrize(
    "changes",
    [
        [set_in("verification_started", "request", dtype="float8")],
        [at("lmcache", ONCE, "reuse", 1, top2=[])],
        [at("control", ONCE, "control", 0, top2=[])],
    ],
    ids=["unknown dtype", "no top2 of the answer", "no top2 of the control"],
)
def test_without_a_bound_or_log_probabilities_no_equal_answer_is_doubted(changes):
    assert judged(FAULTS["difference.hidden"], *changes)["verdict"] == "PASS"


def test_a_near_tie_after_log_probabilities_that_moved_is_a_failure():
    tied = FAULTS["difference.near_tie"]
    assert judged(tied)["verdict"] == "INCONCLUSIVE"
    report = judged(tied, shifted("lmcache", ONCE, "reuse", 1))
    assert codes(report) == {DIFFERS}
    assert report["exit_status"] == 1
    # The margin alone would read like a tie, so what speaks against it is told.
    (entry,) = report["reasons"]
    assert entry["text"].endswith("0.02 apart there, after log-probabilities moved by 0.25)")


def test_a_control_or_prompt_that_is_another_hides_nothing():
    hidden = FAULTS["difference.hidden"]
    assert "difference.hidden" not in codes(judged(hidden, FAULTS["control.cached"]))
    assert codes(judged(hidden, FAULTS["answer.prompt_differs"])) == {"answer.prompt_differs"}


def test_an_absent_answer_is_told_from_a_missing_one():
    answers = build.result(judged(LEFT_OUT), "lmcache", ONCE)["answers"]
    assert [entry["state"] for entry in answers] == ["answered", "absent"]
    missing = build.result(judged(FAULTS["answer.missing"]), "lmcache", ONCE)["answers"][1]
    assert (missing["state"], missing["missing_reason"]) == ("missing", "timeout")


def test_an_answer_recorded_both_as_given_and_as_missing_counts_for_neither():
    report = judged(append(new.answer_missing(**key(), reason="timeout")))
    assert codes(report) == {"answer.repeated", "probe.incomplete"}


def test_each_failure_is_told_and_outranks_any_number_of_unknowns():
    report = judged(FAULTS[DIFFERS], FAULTS["run.not_finished"], FAULTS["hits.unknown"],
                    at("native", TWICE, "reuse", 2, 9))  # fmt: skip
    assert report["verdict"] == "FAIL"
    failed = [(e["target"], e["probe"]) for e in report["reasons"] if e["verdict"] == "FAIL"]
    assert failed == [("native", TWICE), ("lmcache", ONCE)]


@pytest.mark.parametrize(
    "change",
    [
        move("target_finished", {"target": "control"}, "target_finished", {"target": "native"}),
        move("answer", key("control", TINY, "control", 1), "verification_finished", {}),
    ],
)
def test_a_control_must_have_ended_before_a_target_begins(change):
    assert {"target.overlaps"} <= codes(judged(change))


def test_what_is_asked_must_be_fixed_before_anything_is():
    late = move("manifest", {}, "target_finished", {"target": "control"})
    assert codes(judged(late)) == {"run.out_of_order"}


def test_a_control_after_the_targets_is_out_of_place():
    def last(events):
        control = [event for event in events if event.get("target") == "control"]
        events[:] = [event for event in events if event.get("target") != "control"]
        events[-1:-1] = control

    assert codes(judged(last)) == {"target.overlaps"}


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("count", range(len(EVENTS)))
def test_a_run_cut_off_anywhere_has_a_whole_report_that_is_no_pass(count, truncated):
    report = build.report(EVENTS[:count], truncated)
    validate(report, SCHEMA)
    assert report["verdict"] == "INCONCLUSIVE"
    for target in report["targets"]:
        for probe in target["probes"]:
            assert probe["state"] != "incomplete" or probe["verdict"] == "inconclusive"


def test_a_failure_stays_one_when_the_run_is_cut_off_after_it():
    events = copy.deepcopy(EVENTS)
    give(answer_of(events, "native", ONCE, "reuse", 1), 11, 7, 8, 9)
    cut = events.index(answer_of(events, "native", ONCE, "reuse", 1)) + 1
    assert build.report(events[:cut])["verdict"] == "FAIL"


ANSWERS = [place for place, event in enumerate(EVENTS) if event["event"] == "answer"]


@pytest.mark.parametrize("place", range(len(EVENTS)))
def test_a_run_without_any_one_of_its_events_is_no_pass(place):
    events = EVENTS[:place] + EVENTS[place + 1 :]
    report = build.report(events)
    validate(report, SCHEMA)
    assert report["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("place", range(len(EVENTS)))
def test_an_event_that_is_there_twice_is_no_pass(place):
    report = build.report([*EVENTS[: place + 1], *EVENTS[place:]])
    validate(report, SCHEMA)
    assert report["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize("place", ANSWERS)
@pytest.mark.parametrize("index", range(len(build.ANSWER)))
@pytest.mark.parametrize("token", [99, "runner-up"])
def test_one_other_token_anywhere_is_no_pass(place, index, token):
    events = copy.deepcopy(EVENTS)
    events[place]["token_ids"][index] = build.ANSWER[index] + 100 if token == "runner-up" else token
    report = build.report(events)
    kind = events[place]["kind"]
    assert report["verdict"] == ("FAIL" if kind == "reuse" else "INCONCLUSIVE")


@given(order=st.permutations(range(len(EVENTS))))
@settings(max_examples=60, deadline=None)
def test_events_in_any_other_order_are_no_pass_unless_nothing_that_counts_moved(order):
    report = build.report([EVENTS[place] for place in order])
    assert report["verdict"] in ("INCONCLUSIVE", "PASS")
    if report["verdict"] == "PASS":
        assert order[0] == 0
        assert order[-1] == len(EVENTS) - 1


def test_the_same_history_gives_the_same_bytes_and_no_time_but_its_own():
    first, second = (json.dumps(judged()) for _ in range(2))
    assert first == second
    words = json.dumps({key: value for key, value in judged().items() if key != "created_at"})
    assert "2026-11-30" not in words
    assert "second" not in words
