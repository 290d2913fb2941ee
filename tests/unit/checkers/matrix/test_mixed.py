# SPDX-License-Identifier: Apache-2.0
"""The mixed requests: each rule is seen to turn the verdict once."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.canonical import digest
from kvseal.checkers.matrix import REASONS

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
Events = list[dict[str, Any]]
Damage = Callable[[Events], object]
SPEC = build.make_spec(backends=("process",), restarts=())
SOURCE, EXACT, FIRST, OTHER, LITERAL = 0, 1, 2, 3, 10
"""One request of each kind; the first literal one finds nothing, the last ordinary KV."""
WITNESS = build.witness_tokens("mixed-0", build.prompt_of("mixed-0"))
CONTROL = build.control_tokens(build.prompt_of("mixed-0"))


@functools.cache
def recorded(chosen: Any) -> Events:
    return list(build.passing_events(chosen))


def passing(chosen: Any = SPEC) -> Events:
    return [dict(event) for event in recorded(chosen)]


def put(index: int, /, **fields: Any) -> Damage:
    return lambda events: build.find(events, "mixed", index=index).update(fields)


def every(**fields: Any) -> Damage:
    def damage(events: Events) -> None:
        for event in events:
            if event["event"] == "mixed":
                event.update(fields)

    return damage


def alike(events: Events) -> None:
    """The control answers the literal tokens as the artifact does."""
    prompt = digest(build.prompt_of("mixed-0"))
    build.find(events, "witness", artifact="mixed-0")["output_token_ids"] = CONTROL
    for event in events:
        if event["event"] == "mixed" and event["prompt_sha256"] == prompt:
            event["output_token_ids"] = CONTROL


DAMAGES: dict[str, tuple[str, str, Damage]] = {
    # What: (reason, figure that counts it, damage)
    "a variant that must not be found": (
        "mixed.unsafe_hit", "unsafe_hits", put(OTHER, hit_tokens_vllm=64),
    ),
    "a variant that must not be found, whatever the driver says of it": (
        "mixed.unsafe_hit", "unsafe_hits",
        put(OTHER, required="any", hit_tokens_vllm=192, output_token_ids=WITNESS),
    ),
    "an ordinary request with the artifact's answer": (
        "mixed.unsafe_hit", "unsafe_hits", put(LITERAL, output_token_ids=WITNESS),
    ),
    "an ordinary request with any other answer": (
        "mixed.wrong_answer", "wrong_answers", put(LITERAL, output_token_ids=[9]),
    ),
    "the artifact's answer, and no hit": (
        "mixed.wrong_answer", "wrong_answers", put(FIRST, output_token_ids=WITNESS),
    ),
    "a source with another answer": (
        "mixed.wrong_answer", "wrong_answers", put(SOURCE, output_token_ids=[9]),
    ),
    "a miss with another answer": (
        "mixed.wrong_answer", "wrong_answers", put(OTHER, output_token_ids=[9]),
    ),
    "a hit with another answer": (
        "mixed.wrong_answer", "wrong_answers", put(EXACT, output_token_ids=CONTROL),
    ),
    "a hit that is lost": (
        "mixed.lost_hit", "lost_hits",
        put(EXACT, hit_tokens_vllm=0, output_token_ids=CONTROL),
    ),
    "a part of a hit": ("mixed.lost_hit", "lost_hits", put(EXACT, hit_tokens_vllm=64)),
    "more than a hit": ("mixed.hit_differs", "inconclusive", put(EXACT, hit_tokens_vllm=256)),
    "a hit that nobody counted": (
        "mixed.hit_unknown", "inconclusive", put(SOURCE, hit_tokens_vllm=None),
    ),
    "a prompt that the control was not asked": (
        "mixed.no_truth", "inconclusive", put(SOURCE, prompt_sha256="a" * 64),
    ),
    "an answer that both give": ("mixed.indistinct", "inconclusive", alike),
    "a variant of the plain engine": (
        "mixed.identity", "inconclusive", put(SOURCE, variant=build.shared_variant("mixed-0")),
    ),
    "another variant than that of what must hit": (
        "mixed.identity", "unsafe_hits", put(EXACT, variant=build.shared_variant("mixed-1")),
    ),
    "no variant of what must hit": ("mixed.identity", "inconclusive", put(EXACT, variant="")),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_counted(what: str) -> None:
    code, figure, damage = DAMAGES[what]
    events = passing()
    damage(events)
    result = build.judged(SPEC, events)
    assert code in {entry["code"] for entry in result["reasons"]}
    assert result["verdict"] == ("INCONCLUSIVE" if figure == "inconclusive" else "FAIL")
    assert result["mixed"][figure] >= 1
    assert result["mixed"]["passed"] == 12 - result["mixed"][figure]


PLAN: dict[str, tuple[str, Damage]] = {
    "one is missing": (
        "mixed.missing", lambda e: e.remove(build.find(e, "mixed", index=SOURCE)),
    ),
    "one is there twice": ("mixed.unexpected", put(SOURCE + 4, index=SOURCE)),
    "one too many": ("mixed.unexpected", put(SOURCE, index=12)),
    "one engine": ("mixed.one_sided", every(engine="snapkv")),
    "no hit required": ("mixed.one_sided", every(required="any")),
    "no literal tokens": ("mixed.one_sided", every(artifact="ordinary-a")),
    "no plain engine": (
        "engines.missing", lambda e: e.remove(build.find(e, "engines_started", engine="plain")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLAN)
def test_requests_that_could_show_nothing_do_not_pass(what: str) -> None:
    code, damage = PLAN[what]
    events = passing()
    damage(events)
    result = build.judged(SPEC, events)
    assert code in {entry["code"] for entry in result["reasons"]}
    assert result["verdict"] != "PASS"


def test_every_reason_about_mixed_requests_is_seen() -> None:
    tried = {code for code, _, _ in DAMAGES.values()} | {code for code, _ in PLAN.values()}
    assert {code for code in REASONS if code.startswith("mixed.")} <= tried


def test_a_passing_run_counts_what_was_required() -> None:
    result = build.judged(SPEC, passing())
    assert result["verdict"] == "PASS"
    assert result["mixed"] == {
        "planned": 12, "requests": 12, "hits_required": 3, "misses_required": 3,
        "either_allowed": 6, "hits_seen": 7, "passed": 12, "unsafe_hits": 0, "wrong_answers": 0,
        "lost_hits": 0, "inconclusive": 0,
    }  # fmt: skip


def test_none_asked_for_none_needed() -> None:
    chosen = build.make_spec(backends=("process",), restarts=(), mixed_requests=0)
    result = build.judged(chosen, passing(chosen))
    assert (result["verdict"], result["mixed"]["requests"]) == ("PASS", 0)


def test_a_weak_answer_is_none_where_nothing_was_loaded() -> None:
    events = passing()
    alike(events)
    for event in events:
        if event["event"] == "mixed" and event["kind"] == "literal":
            event["hit_tokens_vllm"] = 0
    assert build.judged(SPEC, events)["verdict"] == "PASS"


def test_stock_may_not_serve_the_artifact_to_an_ordinary_request() -> None:
    chosen = build.make_spec(backends=("process",), restarts=(), identity="none")
    assert build.judged(chosen, passing(chosen))["verdict"] == "PASS"
    events = passing(chosen)
    put(LITERAL, output_token_ids=WITNESS)(events)
    result = build.judged(chosen, events)
    assert (result["verdict"], result["mixed"]["unsafe_hits"]) == ("FAIL", 1)
