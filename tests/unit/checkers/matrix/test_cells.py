# SPDX-License-Identifier: Apache-2.0
"""Cells of the matrix: what passes, and a damage for each rule, each of which turns its cell."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.checkers.matrix import REASONS
from kvseal.identity.variant import MARK

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
Events = list[dict[str, Any]]
Damage = Callable[[Events], None]
ALL = ("process", "mp", "native", "fs")
QUIET = {"mixed_requests": 0}
OTHER = [9, 9, 9]


def spec(**changes: Any) -> Any:
    return build.make_spec(**(QUIET | {"backends": ("mp",), "restarts": ("engine",)} | changes))


@functools.cache
def recorded(chosen: Any) -> Events:
    return list(build.passing_events(chosen))


def passing(chosen: Any) -> Events:
    return [dict(event) for event in recorded(chosen)]


def outcome(result: dict[str, Any], case: str, backend: str = "mp", after: str = "none") -> str:
    (row,) = [row for row in result["rows"] if row["case"] == case]
    (cell,) = [c for c in row["cells"] if (c["backend"], c["after"]) == (backend, after)]
    return str(cell["outcome"])


def codes(result: dict[str, Any]) -> set[str]:
    return {entry["code"] for entry in result["reasons"]}


def put(name: str, where: dict[str, Any], **fields: Any) -> Damage:
    """A damage: the first event `name` with the fields `where` gets `fields`."""

    def damage(events: Events) -> None:
        build.find(events, name, **where).update(fields)

    return damage


def ask(case: str, number: int = 0, /, after: str = "none", **fields: Any) -> Damage:
    where = {"case": case, "backend": "mp", "after": after, "step": number}
    return put("asked", where, **fields)


def store(case: str, **fields: Any) -> Damage:
    return put("stored", cell(case), **fields)


def see(case: str, number: int, **fields: Any) -> Damage:
    return put("observed", {**cell(case), "step": number}, **fields)


def without(name: str, **where: Any) -> Damage:
    def damage(events: Events) -> None:
        events.remove(build.find(events, name, **where))

    return damage


def twice(name: str, **where: Any) -> Damage:
    def damage(events: Events) -> None:
        event = build.find(events, name, **where)
        events.insert(events.index(event), dict(event))

    return damage


def early(name: str, before: str, **where: Any) -> Damage:
    """A damage: the event stands before the first `before` of its cell."""

    def damage(events: Events) -> None:
        event = build.find(events, name, **where)
        place = {key: event[key] for key in ("case", "backend", "after")}
        events.remove(event)
        events.insert(events.index(build.find(events, before, **place)), event)

    return damage


def both(*damages: Damage) -> Damage:
    def damage(events: Events) -> None:
        for one in damages:
            one(events)

    return damage


def hits(count: int | None, vllm: Any = "same") -> dict[str, Any]:
    return {"hit_tokens_server": count, "hit_tokens_vllm": count if vllm == "same" else vllm}


def cell(case: str, after: str = "none") -> dict[str, Any]:
    return {"case": case, "backend": "mp", "after": after}


LITERAL, OWN = "literal-retained-tokens", "same-transform"
FIELD = "field-query.digest"
SNAPKV = build.prompt_of("snapkv-a")
WITNESS, CONTROL = build.true_tokens("snapkv-a", SNAPKV), build.control_tokens(SNAPKV)

DAMAGES: dict[str, tuple[str, str, str, Damage]] = {
    # What: (case, outcome of its cell, reason, damage)
    "both count a hit": (LITERAL, "unsafe_hit", "hit.unsafe", ask(LITERAL, **hits(192))),
    "only the server": (LITERAL, "unsafe_hit", "hit.unsafe", ask(LITERAL, **hits(192, 0))),
    "only vLLM": (LITERAL, "unsafe_hit", "hit.unsafe", ask(LITERAL, **hits(0, 192))),
    "a hit beside an unknown count": (
        LITERAL, "unsafe_hit", "hit.unsafe", ask(LITERAL, **hits(64, None)),
    ),
    "an unsafe hit with the right answer of another": (
        LITERAL, "unsafe_hit", "hit.unsafe",
        ask(LITERAL, **hits(192), output_token_ids=WITNESS),
    ),
    "a miss that nobody counted": (
        LITERAL, "inconclusive", "hit.unknown", ask(LITERAL, **hits(None)),
    ),
    "a miss that the server did not count": (
        LITERAL, "inconclusive", "hit.unknown", ask(LITERAL, **hits(None, 0)),
    ),
    "a miss that vLLM did not count": (
        LITERAL, "inconclusive", "hit.unknown", ask(LITERAL, **hits(0, None)),
    ),
    "no hit, and yet another answer": (
        LITERAL, "wrong_answer", "answer.wrong", ask(LITERAL, output_token_ids=OTHER),
    ),
    "no hit, and yet the artifact's answer": (
        LITERAL, "wrong_answer", "answer.wrong", ask(LITERAL, output_token_ids=WITNESS),
    ),
    "a miss without an answer": (
        LITERAL, "inconclusive", "answer.missing", ask(LITERAL, output_token_ids=None),
    ),
    "a miss with an empty answer": (
        LITERAL, "inconclusive", "answer.missing", ask(LITERAL, output_token_ids=[]),
    ),
    "a miss that was refused": (
        LITERAL, "lost_hit", "refusal.unexpected",
        ask(LITERAL, **hits(None), refusal="no", output_token_ids=None),
    ),
    "a hit that was refused": (
        OWN, "lost_hit", "refusal.unexpected",
        ask(OWN, **hits(None), refusal="no", output_token_ids=None),
    ),
    "a required hit that missed": (
        OWN, "lost_hit", "hit.lost", ask(OWN, **hits(0), output_token_ids=CONTROL),
    ),
    "a required hit that missed and answered neither": (
        OWN, "wrong_answer", "answer.wrong", ask(OWN, **hits(0), output_token_ids=OTHER),
    ),
    "a part of a hit": (OWN, "lost_hit", "hit.lost", ask(OWN, **hits(128))),
    "more than a hit": (OWN, "inconclusive", "hit.differs", ask(OWN, **hits(256))),
    "counts that disagree": (OWN, "inconclusive", "hit.differs", ask(OWN, **hits(192, 128))),
    "a hit that vLLM knows nothing of": (
        OWN, "inconclusive", "hit.differs", ask(OWN, **hits(192, 0)),
    ),
    "a hit that vLLM did not count": (
        OWN, "inconclusive", "hit.unknown", ask(OWN, **hits(192, None)),
    ),
    "a hit that the server did not count": (
        OWN, "inconclusive", "hit.unknown", ask(OWN, **hits(None, 192)),
    ),
    "a hit with another answer": (
        OWN, "wrong_answer", "answer.wrong", ask(OWN, output_token_ids=OTHER),
    ),
    "a hit that answers as a recomputation": (
        OWN, "wrong_answer", "answer.wrong", ask(OWN, output_token_ids=CONTROL),
    ),
    "the second hit alone is wrong": (
        OWN, "wrong_answer", "answer.wrong", ask(OWN, 1, output_token_ids=OTHER),
    ),
    "a hit without an answer": (
        OWN, "inconclusive", "answer.missing", ask(OWN, output_token_ids=None),
    ),
    "a hit with unknown counts and another answer": (
        OWN, "wrong_answer", "answer.wrong", ask(OWN, **hits(None), output_token_ids=OTHER),
    ),
    "the other source's answer": (
        "two-sources-together", "wrong_answer", "answer.wrong",
        ask("two-sources-together",
            output_token_ids=build.true_tokens("fixed-a", build.prompt_of("fixed-a"))),
    ),
    "ordinary KV for the exact variant": (
        "ordinary-and-variant-together", "wrong_answer", "answer.wrong",
        ask("ordinary-and-variant-together", 1, output_token_ids=CONTROL),
    ),
    "a descendant that was lost": (
        "descendant-reused", "lost_hit", "hit.lost", ask("descendant-reused", 1, **hits(192)),
    ),
    "a descendant for an ordinary request": (
        "descendant-ordinary", "unsafe_hit", "hit.unsafe",
        ask("descendant-ordinary", 1, **hits(320)),
    ),
    "a name of no variant that is answered": (
        "malformed-variant", "not_refused", "refusal.missing",
        ask("malformed-variant", **hits(0), refusal=None, output_token_ids=CONTROL),
    ),
    "a name of no variant that hits": (
        "malformed-variant", "unsafe_hit", "hit.unsafe",
        ask("malformed-variant", **hits(192), refusal=None, output_token_ids=CONTROL),
    ),
    "a refusal after something was loaded": (
        "malformed-variant", "unsafe_hit", "hit.unsafe",
        ask("malformed-variant", **hits(192, None)),
    ),
    "a lie that is stored": (
        "lying-numbers", "not_refused", "store.not_refused",
        store("lying-numbers", refusal=None, tokens=192),
    ),
    "a lie that is found": (
        "lying-numbers", "unsafe_hit", "hit.unsafe", ask("lying-numbers", **hits(192)),
    ),
    "a store that was refused": (
        OWN, "lost_hit", "store.refused", store(OWN, refusal="full", tokens=0),
    ),
    "a store that came out short": (OWN, "inconclusive", "store.short", store(OWN, tokens=128)),
    "another thing that was seen": (
        "capability", "not_seen", "seen.other", see("capability", 0, value="nothing"),
    ),
    "another act than the case's": (
        "capability", "inconclusive", "step.kind", see("capability", 0, what="metrics"),
    ),
    "an act that had to be refused": (
        "request-local-not-published", "not_refused", "refusal.missing",
        see("request-local-not-published", 0, value="1 variant"),
    ),
    "a value that only begins like a refusal": (
        "request-local-not-published", "not_refused", "refusal.missing",
        see("request-local-not-published", 0, value="refused nothing"),
    ),
    # The cell is not whole.
    "no beginning": (OWN, "inconclusive", "cell.missing", without("cell", **cell(OWN))),
    "two beginnings": (OWN, "inconclusive", "cell.repeated", twice("cell", **cell(OWN))),
    "no store": (OWN, "inconclusive", "store.missing", without("stored", **cell(OWN))),
    "a store too many": (OWN, "inconclusive", "store.unexpected", twice("stored", **cell(OWN))),
    "a store of another artifact": (
        OWN, "inconclusive", "store.missing", store(OWN, artifact="fixed-a"),
    ),
    "no step": (OWN, "inconclusive", "step.missing", without("asked", **cell(OWN), step=1)),
    "a step twice": (OWN, "inconclusive", "step.repeated", twice("asked", **cell(OWN), step=1)),
    "a step that is not in the case": (
        OWN, "inconclusive", "step.unknown",
        both(twice("asked", **cell(OWN), step=1), ask(OWN, 1, step=2)),
    ),
    # Its order.
    "a store after a step": (
        OWN, "inconclusive", "store.out_of_order", early("asked", "stored", **cell(OWN), step=0),
    ),
    "a store before the cell": (
        OWN, "inconclusive", "store.out_of_order", early("stored", "cell", **cell(OWN)),
    ),
    "steps in another order": (
        OWN, "inconclusive", "step.out_of_order", early("asked", "asked", **cell(OWN), step=1),
    ),
    # Its names.
    "another variant than the artifact's": (
        OWN, "inconclusive", "identity.variant", ask(OWN, variant=build.shared_variant("fixed-a")),
    ),
    "no variant where one is demanded": (
        OWN, "inconclusive", "identity.variant", ask(OWN, variant=""),
    ),
    "a variant where none may be": (
        LITERAL, "inconclusive", "identity.variant",
        ask(LITERAL, variant=build.shared_variant("snapkv-a")),
    ),
    "another artifact's variant that is not that one's": (
        "other-source", "inconclusive", "identity.variant",
        ask("other-source", variant=build.shared_variant("fixed-a")),
    ),
    "a changed manifest with the same variant": (
        FIELD, "inconclusive", "identity.variant",
        ask(FIELD, variant=build.local_variant("local-a", *cell(FIELD).values())),
    ),
    "a changed manifest with no variant": (
        FIELD, "inconclusive", "identity.variant", ask(FIELD, variant=""),
    ),
    "another text than the case's": (
        "malformed-variant", "inconclusive", "identity.variant",
        ask("malformed-variant", variant="q"),
    ),
    "what the index gave was not asked for": (
        "recipe-found", "inconclusive", "identity.variant", ask("recipe-found", 1, variant=""),
    ),
    "a store under another variant": (
        OWN, "inconclusive", "identity.variant",
        store(OWN, variant=build.shared_variant("fixed-a")),
    ),
    "a request-local store under a shared variant": (
        "request-local-own", "inconclusive", "identity.variant",
        store("request-local-own", variant=build.shared_variant("snapkv-a")),
    ),
    "an ordinary store under a variant": (
        "ordinary-same-prefix", "inconclusive", "identity.variant",
        store("ordinary-same-prefix", variant=build.shared_variant("snapkv-a")),
    ),
    "one seal for two cells": (
        "request-local-own", "inconclusive", "identity.not_fresh",
        store("request-local-own",
              variant=build.local_variant("local-a", *cell("request-local-other").values())),
    ),
    "a store of another tenant": (OWN, "inconclusive", "identity.salt", store(OWN, cache_salt="x")),
    "a request of another tenant": (OWN, "inconclusive", "identity.salt", ask(OWN, cache_salt="x")),
    "the own tenant where another is demanded": (
        "other-tenant", "inconclusive", "identity.salt",
        ask("other-tenant", cache_salt="mp-none-other-tenant"),
    ),
    "a cell's tenant where another is demanded": (
        "other-tenant", "inconclusive", "identity.salt",
        ask("other-tenant", cache_salt="mp-none-same-transform"),
    ),
    "a salt that is no variant": (
        "salt-is-variant", "inconclusive", "identity.salt", ask("salt-is-variant", cache_salt="x"),
    ),
    "a salt that holds another mark": (
        "salt-holds-mark", "inconclusive", "identity.salt",
        ask("salt-holds-mark", cache_salt=MARK + build.shared_variant("fixed-a")),
    ),
    "a tenant for two cells": (
        OWN, "inconclusive", "cell.salt_shared",
        put("cell", cell(OWN), cache_salt=f"mp-none-{LITERAL}"),
    ),
    "no tenant": (OWN, "inconclusive", "cell.salt_shared", put("cell", cell(OWN), cache_salt="")),
    # Its tokens.
    "another artifact than the case's": (
        OWN, "inconclusive", "asked.artifact", ask(OWN, artifact="fixed-a"),
    ),
    "other tokens than the rest of the run": (
        LITERAL, "inconclusive", "asked.prompt_differs", ask(LITERAL, prompt_sha256="a" * 64),
    ),
    "a full hit that is none": (
        OWN, "inconclusive", "asked.hit_length",
        ask(OWN, artifact_tokens=128, **hits(128)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_turns_its_cell(what: str) -> None:
    case, expected, code, damage = DAMAGES[what]
    chosen = spec()
    events = passing(chosen)
    damage(events)
    result = build.judged(chosen, events)
    assert outcome(result, case) == expected
    assert code in codes(result)
    verdict = "INCONCLUSIVE" if expected == "inconclusive" else "FAIL"
    assert result["verdict"] == verdict
    assert {entry["verdict"] for entry in result["reasons"]} <= {verdict, "INCONCLUSIVE"}
    # Nothing else of the run is drawn in, but for what two cells share.
    turned = {(entry["cell"] or {}).get("case") for entry in result["reasons"]}
    assert turned <= {case, LITERAL, "request-local-other"}
    assert result["counts"]["passed"] >= result["counts"]["cells"] - 2


@pytest.mark.parametrize("backend", ALL)
def test_an_ideal_run_passes_on_each_backend(backend: str) -> None:
    chosen = spec(backends=(backend,), restarts=("engine", "server", "both"))
    result = build.judged(chosen, passing(chosen))
    assert (result["verdict"], result["reasons"]) == ("PASS", [])
    counts = result["counts"]
    assert counts["passed"] == counts["cells"] > 0


@pytest.mark.parametrize(
    ("after", "backend", "required"),
    [("engine", "mp", "hit"), ("server", "mp", "miss"), ("both", "fs", "hit"),
     ("engine", "process", "miss"), ("server", "native", "miss")],
)  # fmt: skip
def test_what_a_restart_takes_away_has_to_miss(after: str, backend: str, required: str) -> None:
    chosen = spec(backends=(backend,), restarts=(after,))
    result = build.judged(chosen, passing(chosen))
    (row,) = [row for row in result["rows"] if row["case"] == OWN]
    assert [cell["required"] for cell in row["cells"]] == ["hit", required]


def test_a_hit_on_what_a_restart_had_to_take_away_is_unsafe() -> None:
    chosen = spec(restarts=("server",))
    events = passing(chosen)
    ask(OWN, after="server", **hits(192), output_token_ids=WITNESS)(events)
    assert outcome(build.judged(chosen, events), OWN, after="server") == "unsafe_hit"


RESTARTS: dict[str, tuple[str, Damage]] = {
    "none at all": ("restart.missing", without("restarted", backend="mp")),
    "of something else": ("restart.missing", put("restarted", {}, what="server")),
    "of another backend": ("restart.missing", put("restarted", {}, backend="fs")),
    "twice": ("restart.unexpected", twice("restarted", backend="mp")),
}


@pytest.mark.parametrize("left", [None, 1])
def test_a_hit_on_the_second_tier_needs_an_empty_memory_before_it(left: int | None) -> None:
    chosen = spec(backends=("fs",))
    events = passing(chosen)
    if left is None:
        without("emptied", backend="fs")(events)
    else:
        put("emptied", {}, objects_after=left)(events)
    result = build.judged(chosen, events)
    assert result["verdict"] == "INCONCLUSIVE"
    assert "memory.not_emptied" in codes(result)


@pytest.mark.parametrize("what", RESTARTS)
def test_a_cell_after_a_restart_needs_that_restart(what: str) -> None:
    code, damage = RESTARTS[what]
    chosen = spec()
    events = passing(chosen)
    damage(events)
    result = build.judged(chosen, events)
    assert result["verdict"] == "INCONCLUSIVE"
    assert outcome(result, OWN, after="engine") == "inconclusive"
    assert outcome(result, OWN) == "passed"
    assert code in codes(result)


def test_a_restart_after_the_first_ask_is_none_between_store_and_ask() -> None:
    chosen = spec()
    events = passing(chosen)
    restart = build.find(events, "restarted")
    events.remove(restart)
    events.insert(events.index(build.find(events, "asked", **cell(OWN, "engine"), step=1)), restart)
    result = build.judged(chosen, events)
    reasons = [e["code"] for e in result["reasons"] if e["cell"] == cell(OWN, "engine")]
    assert reasons == ["restart.missing", "restart.unexpected"]


def test_a_restart_before_a_store_is_none_between_store_and_ask() -> None:
    chosen = spec()
    events = passing(chosen)
    restart = build.find(events, "restarted")
    events.remove(restart)
    events.insert(events.index(build.find(events, "stored", **cell(OWN, "engine"))), restart)
    assert outcome(build.judged(chosen, events), OWN, after="engine") == "inconclusive"


def test_a_restart_within_a_cell_without_one_is_unexpected() -> None:
    chosen = spec()
    events = passing(chosen)
    place = events.index(build.find(events, "asked", **cell(OWN), step=0))
    events.insert(place, dict(build.find(events, "restarted")))
    result = build.judged(chosen, events)
    assert outcome(result, OWN) == "inconclusive"
    assert codes(result) == {"restart.unexpected"}


def test_every_reason_about_a_cell_is_seen_to_turn_one() -> None:
    """The tables here, and the tests beside them, leave no rule about a cell untried."""
    tried = {code for _, _, code, _ in DAMAGES.values()} | {code for code, _ in RESTARTS.values()}
    own = {
        "cell",
        "store",
        "step",
        "restart",
        "identity",
        "asked",
        "hit",
        "answer",
        "refusal",
        "seen",
    }
    elsewhere = {
        "cell.unknown",
        "cell.both",
        "cell.not_applicable",
        "answer.no_truth",
        "answer.indistinct",
    }
    assert {code for code in REASONS if code.split(".")[0] in own} == tried | elsewhere
