# SPDX-License-Identifier: Apache-2.0
"""The result as a whole: the run, its artifacts and truths, what was not run, its counts."""

from __future__ import annotations

import functools
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.canonical import digest
from kvseal.checkers.matrix import COUNTED, REASONS, judge_again
from kvseal.records import matrix_builders as new
from kvseal.records.schemas import validate
from kvseal.workload.matrix import AFTERS, BACKENDS, CASES
from kvseal.workload.matrix.case import SERVED

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
Events = list[dict[str, Any]]
Damage = Callable[[Events], object]
SMALL = build.make_spec(backends=("mp",), restarts=(), mixed_requests=0)
OWN = "same-transform"
WHOLE = len(CASES) * len(BACKENDS) * len(AFTERS)


@functools.cache
def recorded(chosen: Any) -> Events:
    return list(build.passing_events(chosen))


def passing(chosen: Any = SMALL) -> Events:
    return [dict(event) for event in recorded(chosen)]


def codes(result: dict[str, Any]) -> set[str]:
    return {entry["code"] for entry in result["reasons"]}


def cells(result: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (row["case"], cell["backend"], cell["after"]): cell
        for row in result["rows"]
        for cell in row["cells"]
    }


def place(case: str, backend: str = "mp", after: str = "none") -> dict[str, str]:
    return {"case": case, "backend": backend, "after": after}


def put(name: str, where: dict[str, Any], /, **fields: Any) -> Damage:
    return lambda events: build.find(events, name, **where).update(fields)


def drop(name: str, /, **where: Any) -> Damage:
    return lambda events: events.remove(build.find(events, name, **where))


def again(name: str, /, **where: Any) -> Damage:
    """The event stands there twice."""

    def damage(events: Events) -> None:
        event = build.find(events, name, **where)
        events.insert(events.index(event), dict(event))

    return damage


def add(event: dict[str, Any]) -> Damage:
    return lambda events: events.insert(-1, event)


def also(name: str, where: dict[str, Any], /, **fields: Any) -> Damage:
    """The event stands there once more, with other fields."""

    def damage(events: Events) -> None:
        event = build.find(events, name, **where)
        events.insert(events.index(event), event | fields)

    return damage


def late(name: str, /, **where: Any) -> Damage:
    """The event stands at the end, where only the end of the run may."""

    def damage(events: Events) -> None:
        event = build.find(events, name, **where)
        events.remove(event)
        events.insert(-1, event)

    return damage


def manifest(**changes: Any) -> dict[str, Any]:
    return dict(build.manifest_of("snapkv-a")) | changes


FOREIGN = manifest(algorithm={"name": "another"})
LOCAL = manifest(scope={"kind": "request-local"})
SNAPKV = {"name": "snapkv-a"}

RUN: dict[str, tuple[str, Damage]] = {
    "no start": ("run.not_started", drop("run_started")),
    "another spec": ("run.spec_differs", put("run_started", {}, spec_sha256="f" * 64)),
    "started later": ("run.out_of_order", lambda e: e.insert(1, e.pop(0))),
    "started twice": ("run.event_repeated", again("run_started")),
    "no environment": ("run.environment_missing", drop("environment")),
    "two environments": ("run.event_repeated", again("environment")),
    "an error": ("run.error", add(new.error(where="store", message="gone"))),
    "an interruption": ("run.interrupted", add(new.interrupted(signal="SIGINT"))),
    "no end": ("run.not_finished", drop("run_finished")),
    "something behind the end": ("run.not_finished", lambda e: e.insert(0, e.pop())),
    "no engine": ("engines.missing", drop("engines_started", engine="main")),
    "an engine behind its answers": ("engines.missing", late("engines_started", engine="main")),
    "another backend's engine": (
        "engines.missing", put("engines_started", {"engine": "main"}, backend="fs"),
    ),
    "no control": ("engines.missing", drop("engines_started", engine="control")),
    "no artifact": ("artifact.missing", drop("artifact", **SNAPKV)),
    "an artifact twice": ("artifact.repeated", again("artifact", **SNAPKV)),
    "an artifact of no table": ("artifact.unknown", also("artifact", SNAPKV, name="mixed-0")),
    "another kind": ("artifact.kind", put("artifact", SNAPKV, kind="legacy")),
    "a variant that is none": ("artifact.variant", put("artifact", SNAPKV, variant="q1")),
    "another's variant": (
        "artifact.variant", put("artifact", SNAPKV, variant=build.shared_variant("fixed-a")),
    ),
    "no manifest": (
        "artifact.variant", put("artifact", SNAPKV, manifest=None, manifest_sha256=None),
    ),
    "a digest without a manifest": ("artifact.manifest", put("artifact", SNAPKV, manifest=None)),
    "another manifest": ("artifact.manifest", put("artifact", SNAPKV, manifest=FOREIGN)),
    "another manifest with its digest": (
        "artifact.variant",
        put("artifact", SNAPKV, manifest=FOREIGN, manifest_sha256=digest(FOREIGN)),
    ),
    "a manifest of other tokens": (
        "artifact.manifest", put("artifact", SNAPKV, token_ids_sha256="a" * 64),
    ),
    "a manifest that can't be digested": (
        "artifact.manifest", put("artifact", SNAPKV, manifest=manifest(ratio=0.5)),
    ),
    "a manifest without a scope": (
        "artifact.variant",
        put("artifact", SNAPKV, manifest=manifest(scope=None),
            manifest_sha256=digest(manifest(scope=None))),
    ),
    "a shared artifact that is request-local": (
        "artifact.variant",
        put("artifact", SNAPKV, manifest=LOCAL, manifest_sha256=digest(LOCAL),
            variant=build.variant_text("request-local", digest(LOCAL))),
    ),
    "a request-local artifact sealed once": (
        "artifact.variant",
        put("artifact", {"name": "local-a"}, variant=build.local_variant("local-a", "x")),
    ),
    "ordinary KV with a variant": (
        "artifact.variant",
        put("artifact", {"name": "ordinary-a"}, variant=build.local_variant("ordinary-a")),
    ),
    "two artifacts of one variant": (
        "artifact.same_variant",
        put("artifact", {"name": "fixed-b"}, variant=build.shared_variant("fixed-a")),
    ),
    "two artifacts whose tokens had to be the same": (
        "artifact.tokens_differ", put("artifact", {"name": "literal-a"}, token_ids_sha256="a" * 64),
    ),
    "a control of two minds": ("control.drifts", also("control", {}, output_token_ids=[9])),
    "a witness of two minds": ("witness.drifts", also("witness", {}, output_token_ids=[9])),
    "a cell of no case": ("cell.unknown", add(new.cell(**place("none-such"), cache_salt="x"))),
    "a cell that was not to be run": (
        "cell.unknown", add(new.cell(**place(OWN, "mp", "engine"), cache_salt="x")),
    ),
    "an answer of no case": (
        "cell.unknown", add(new.observed(**place("none-such"), step=0, what="w", value="v")),
    ),
    "a cell both run and not": (
        "cell.both", add(new.not_applicable(**place("capability"), reason="no")),
    ),
    "no case that does not apply": (
        "cell.unknown", add(new.not_applicable(**place("none-such"), reason="no")),
    ),
    "no answer of the control": (
        "answer.no_truth", drop("control", prompt_sha256=digest(build.prompt_of("snapkv-a"))),
    ),
    "no answer of the witness": ("answer.no_truth", drop("witness", artifact="snapkv-a")),
}  # fmt: skip


@pytest.mark.parametrize("what", RUN)
def test_what_must_be_known_and_is_not_is_inconclusive(what: str) -> None:
    code, damage = RUN[what]
    events = passing()
    damage(events)
    result = build.judged(SMALL, events)
    assert code in codes(result)
    assert result["verdict"] == "INCONCLUSIVE"
    validate(json.loads(json.dumps(result)), "matrix-result.v1")


def test_a_line_that_was_broken_off_is_inconclusive() -> None:
    assert codes(build.judged(SMALL, passing(), truncated=True)) == {"run.truncated"}


def test_every_reason_about_the_run_is_seen() -> None:
    tried = {code for code, _ in RUN.values()} | {"run.truncated"}
    named = {code for code in REASONS if code.split(".")[0] in ("run", "engines", "artifact")}
    assert named | {"control.drifts", "witness.drifts", "cell.unknown", "cell.both"} <= tried


def test_equal_answers_of_a_control_are_one() -> None:
    events = passing()
    again("control")(events)
    again("witness")(events)
    assert build.judged(SMALL, events)["verdict"] == "PASS"


@pytest.mark.parametrize("count", [0, 1, 2, 8, 40, 90, 130])
def test_a_run_broken_off_anywhere_has_a_whole_result(count: int) -> None:
    result = build.judged(SMALL, passing()[:count])
    assert result["verdict"] == "INCONCLUSIVE"
    validate(json.loads(json.dumps(result)), "matrix-result.v1")


def test_the_result_of_everything_is_whole_and_counts_every_cell() -> None:
    chosen = build.make_spec(backends=BACKENDS)
    result = build.judged(chosen, passing(chosen))
    validate(json.loads(json.dumps(result)), "matrix-result.v1")
    counts = result["counts"]
    assert result["verdict"] == "PASS"
    assert counts["cells"] + counts["not_run"] == WHOLE
    assert counts["cells"] == sum(counts[name] for name in COUNTED.values()) == counts["passed"]
    assert {block["by"] for block in result["not_run"]} == {"table"}
    assert all(block["reason"] for block in result["not_run"])
    assert sum(block["cells"] for block in result["not_run"]) == counts["not_run"]
    assert [row["case"] for row in result["rows"]] == [case.name for case in CASES]
    assert result["versions"]["lmcache_version"] == "0.5.4"


def test_what_the_spec_leaves_out_is_counted_and_told() -> None:
    result = build.judged(SMALL, passing())
    assert result["counts"]["cells"] + result["counts"]["not_run"] == WHOLE
    left = [b for b in result["not_run"] if (b["case"], b["by"]) == (OWN, "spec")]
    assert [(b["backends"], b["afters"]) for b in left] == [
        ([name for name in BACKENDS if name != "mp"], list(AFTERS)),
        (["mp"], ["engine", "server", "both"]),
    ]


SOME = build.make_spec(
    backends=("mp", "fs"), restarts=(), cases=(OWN, "request-local-files"), mixed_requests=0
)


def test_cases_that_the_spec_leaves_out_are_counted_and_told() -> None:
    """Artifacts and answers that no chosen case is about need not be there either."""
    events = passing(SOME)
    needed = {"snapkv-a", "local-a"}
    events = [event for event in events if event["event"] != "artifact" or event["name"] in needed]
    result = build.judged(SOME, events)
    validate(json.loads(json.dumps(result)), "matrix-result.v1")
    assert (result["verdict"], result["reasons"]) == ("PASS", [])
    assert set(cells(result)) == {
        (OWN, "mp", "none"), (OWN, "fs", "none"), ("request-local-files", "fs", "none"),
    }  # fmt: skip
    assert result["counts"]["cells"] + result["counts"]["not_run"] == WHOLE
    left = [block for block in result["not_run"] if block["case"] == "capability"]
    assert [(b["by"], b["backends"], b["afters"]) for b in left] == [
        ("table", ["process"], list(AFTERS)),
        ("table", list(SERVED), ["engine", "server", "both"]),
        ("spec", list(SERVED), ["none"]),
    ]
    assert left[-1]["reason"] == "the run spec leaves this case out"


def test_a_chosen_case_that_was_not_run_does_not_pass() -> None:
    events = [event for event in passing(SOME) if event.get("case") != OWN]
    assert codes(build.judged(SOME, events)) == {"cell.missing"}


def test_a_backend_that_cannot_be_used_is_told_and_keeps_the_run_from_passing() -> None:
    events = [event for event in passing(SOME) if event.get("backend") != "fs"]
    why = {"message": "there is no disk", "remedy": "buy one"}
    events.insert(-1, new.backend_unusable(backend="fs", **why))
    result = build.judged(SOME, events)
    validate(json.loads(json.dumps(result)), "matrix-result.v1")
    assert result["verdict"] == "INCONCLUSIVE"
    assert [(entry["code"], entry["message"]) for entry in result["reasons"]] == [
        ("backend.unusable", "backend fs can't be used here: there is no disk; buy one")
    ]
    assert set(cells(result)) == {(OWN, "mp", "none")}
    left = [block for block in result["not_run"] if block["by"] == "driver"]
    assert {(b["case"], tuple(b["backends"]), b["reason"]) for b in left} == {
        (OWN, ("fs",), "there is no disk"), ("request-local-files", ("fs",), "there is no disk"),
    }  # fmt: skip
    assert result["counts"]["cells"] + result["counts"]["not_run"] == WHOLE


def test_what_a_backend_did_is_judged_even_if_it_is_called_unusable() -> None:
    events = passing(SOME)
    why = {"message": "there is no disk", "remedy": "buy one"}
    events.insert(-1, new.backend_unusable(backend="fs", **why))
    result = build.judged(SOME, events)
    assert result["counts"]["cells"] == 3
    assert codes(result) == {"backend.unusable"}


def test_a_case_that_was_not_chosen_counts_for_nothing() -> None:
    events = passing(SOME)
    events.insert(-1, new.cell(**place("other-query"), cache_salt="x"))
    assert codes(build.judged(SOME, events)) == {"cell.unknown"}


def test_a_run_of_no_cell_or_of_an_unknown_case_shows_nothing() -> None:
    nowhere = build.make_spec(
        backends=("mp",), restarts=(), cases=("request-local-files",), mixed_requests=0
    )
    assert codes(build.judged(nowhere, passing(nowhere))) == {"case.none"}
    renamed = build.make_spec(
        backends=("mp",), restarts=(), cases=(OWN, "renamed"), mixed_requests=0
    )
    known = build.make_spec(backends=("mp",), restarts=(), cases=(OWN,), mixed_requests=0)
    events = passing(known)
    events[0]["spec_sha256"] = renamed.sha256()
    result = build.judged(renamed, events)
    assert (result["verdict"], codes(result)) == ("INCONCLUSIVE", {"case.unknown"})


def test_a_driver_that_leaves_a_cell_out_does_not_pass() -> None:
    events = [event for event in passing() if event.get("case") != OWN]
    events.insert(-1, new.not_applicable(**place(OWN), reason="too hard"))
    result = build.judged(SMALL, events)
    assert result["verdict"] == "INCONCLUSIVE"
    assert codes(result) == {"cell.not_applicable", "cell.missing"}
    assert cells(result)[OWN, "mp", "none"]["outcome"] == "inconclusive"


def test_the_process_has_no_server_to_restart() -> None:
    chosen = build.make_spec(backends=("process",), restarts=("server",), mixed_requests=0)
    events = [event for event in passing(chosen) if event.get("after") != "server"]
    events = [event for event in events if event["event"] != "restarted"]
    behind = [case for case in CASES if "process" in case.backends and "server" in case.afters]
    for case in behind:
        events.insert(
            -1, new.not_applicable(**place(case.name, "process", "server"), reason="no server")
        )
    result = build.judged(chosen, events)
    assert result["verdict"] == "PASS"
    told = [block for block in result["not_run"] if block["by"] == "driver"]
    assert len(told) == len(behind)
    assert {block["reason"] for block in told} == {"no server"}
    assert result["counts"]["cells"] + result["counts"]["not_run"] == WHOLE


def test_a_case_that_does_not_exist_somewhere_may_be_said_not_to() -> None:
    events = passing()
    events.insert(-1, new.not_applicable(**place("files", "mp"), reason="no files"))
    events[-2]["case"] = "request-local-files"
    assert build.judged(SMALL, events)["verdict"] == "PASS"
    events.insert(-1, dict(events[-2]))
    assert codes(build.judged(SMALL, events)) == {"cell.repeated"}


STOCK = build.make_spec(backends=("mp",), restarts=(), identity="none", mixed_requests=0)


def test_stock_is_judged_by_the_same_table() -> None:
    assert build.judged(STOCK, passing(STOCK))["verdict"] == "PASS"
    events = passing(STOCK)
    build.find(events, "asked", **place("literal-retained-tokens")).update(
        hit_tokens_vllm=192, hit_tokens_server=192
    )
    result = build.judged(STOCK, events)
    assert (result["verdict"], result["counts"]["unsafe_hits"]) == ("FAIL", 1)


@pytest.mark.parametrize("name", ["stored", "asked"])
def test_stock_names_no_variant(name: str) -> None:
    events = passing(STOCK)
    build.find(events, name, **place(OWN))["variant"] = build.shared_variant("snapkv-a")
    assert codes(build.judged(STOCK, events)) == {"identity.variant"}


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("capability", "PASS"), ("recipe-found", "PASS"), ("malformed-variant", "PASS"),
        ("salt-is-variant", "PASS"), ("lying-numbers", "PASS"),
        (OWN, "INCONCLUSIVE"), ("field-query.digest", "INCONCLUSIVE"),
    ],
)  # fmt: skip
def test_stock_may_leave_out_what_needs_an_identity(case: str, verdict: str) -> None:
    events = [event for event in passing(STOCK) if event.get("case") != case]
    events.insert(-1, new.not_applicable(**place(case), reason="stock has none"))
    assert build.judged(STOCK, events)["verdict"] == verdict


NATIVE = build.make_spec(backends=("native",), restarts=(), mixed_requests=0)


@pytest.mark.parametrize(
    ("server", "vllm", "outcome"),
    [
        (192, 192, "passed"), (0, 192, "passed"), (128, 256, "passed"),
        (0, 0, "lost_hit"), (64, 128, "lost_hit"), (192, 128, "inconclusive"),
        (192, 0, "inconclusive"), (None, 192, "inconclusive"), (192, None, "inconclusive"),
    ],
)  # fmt: skip
def test_vllms_own_cache_may_have_more_than_the_server_gave(
    server: int | None, vllm: int | None, outcome: str
) -> None:
    events = passing(NATIVE)
    asked = build.find(events, "asked", **place(OWN, "native"))
    asked.update(hit_tokens_server=server, hit_tokens_vllm=vllm)
    if not server and not vllm:
        asked["output_token_ids"] = build.control_tokens(build.prompt_of("snapkv-a"))
    assert cells(build.judged(NATIVE, events))[OWN, "native", "none"]["outcome"] == outcome


def test_vllms_own_cache_may_not_serve_what_must_miss() -> None:
    events = passing(NATIVE)
    case = "ordinary-after-variant"
    build.find(events, "asked", **place(case, "native"), step=1)["hit_tokens_vllm"] = 64
    assert cells(build.judged(NATIVE, events))[case, "native", "none"]["outcome"] == "unsafe_hit"


PROCESS = build.make_spec(backends=("process",), restarts=(), mixed_requests=0)
LITERAL = "literal-retained-tokens"


@pytest.mark.parametrize(
    ("case", "fields", "outcome"),
    [
        (OWN, {}, "passed"),
        (OWN, {"payload_sha256": "a" * 64}, "wrong_answer"),
        (OWN, {"payload_sha256": None}, "inconclusive"),
        (OWN, {"payload_sha256": None, "hit_tokens_server": 0}, "lost_hit"),
        (OWN, {"hit_tokens_server": 128}, "lost_hit"),
        (OWN, {"hit_tokens_server": 256}, "inconclusive"),
        (OWN, {"hit_tokens_server": None}, "inconclusive"),
        (LITERAL, {}, "passed"),
        (LITERAL, {"hit_tokens_server": 64}, "unsafe_hit"),
        (LITERAL, {"payload_sha256": "a" * 64}, "unsafe_hit"),
        (LITERAL, {"hit_tokens_server": None}, "inconclusive"),
    ],
)
def test_without_an_engine_the_payload_answers(
    case: str, fields: dict[str, Any], outcome: str
) -> None:
    events = passing(PROCESS)
    build.find(events, "asked", **place(case, "process")).update(fields)
    assert cells(build.judged(PROCESS, events))[case, "process", "none"]["outcome"] == outcome


def alike(events: Events, one: str, other: str) -> None:
    """The witness answers from both artifacts alike."""
    answer = build.find(events, "witness", artifact=one)["output_token_ids"]
    build.find(events, "witness", artifact=other)["output_token_ids"] = answer
    for event in events:
        if event["event"] == "asked" and event["artifact"] == other and event["hit_tokens_server"]:
            event["output_token_ids"] = answer


def test_an_answer_that_two_stored_artifacts_share_is_no_evidence() -> None:
    events = passing()
    alike(events, "fixed-a", "fixed-b")
    result = build.judged(SMALL, events)
    assert {(e["code"], e["cell"]["case"]) for e in result["reasons"]} == {
        ("answer.indistinct", "two-sources-together")
    }


def test_a_stored_artifact_that_nobody_witnessed_could_be_the_one_loaded() -> None:
    events = passing()
    drop("witness", artifact="fixed-b")(events)
    about = [e["code"] for e in build.judged(SMALL, events)["reasons"]]
    assert sorted(about) == ["answer.indistinct", "answer.no_truth"]


def test_a_payload_that_two_stored_artifacts_share_is_no_evidence() -> None:
    events = passing(PROCESS)
    own = build.find(events, "artifact", name="fixed-a")["payload_sha256"]
    build.find(events, "artifact", name="fixed-b")["payload_sha256"] = own
    for event in events:
        if event["event"] == "asked" and event["artifact"] == "fixed-b" and event["payload_sha256"]:
            event["payload_sha256"] = own
    assert codes(build.judged(PROCESS, events)) == {"answer.indistinct"}


def test_an_answer_that_a_recomputation_shares_is_noted_where_counts_decide() -> None:
    events = passing()
    prompt = build.prompt_of("snapkv-a-quarter")
    weak, about = build.control_tokens(prompt), digest(prompt)
    witness = build.find(events, "witness", artifact="snapkv-a-quarter", prompt_sha256=about)
    witness["output_token_ids"] = weak
    for event in events:
        if event["event"] == "asked" and event["prompt_sha256"] == about:
            event["output_token_ids"] = weak
    result = build.judged(SMALL, events)
    assert result["verdict"] == "PASS"
    steps = [step for cell in cells(result).values() for step in cell["steps"] if step.get("weak")]
    assert result["weak_answers"] == len(steps) == 2


def test_the_worst_of_a_cell_is_what_it_is_counted_as() -> None:
    events = passing()
    for step in (0, 1):
        build.find(events, "asked", **place(OWN), step=step).update(
            hit_tokens_vllm=0, hit_tokens_server=0, output_token_ids=[9]
        )
    result = build.judged(SMALL, events)
    assert cells(result)[OWN, "mp", "none"]["outcome"] == "wrong_answer"
    assert (result["counts"]["wrong_answers"], result["counts"]["lost_hits"]) == (1, 0)
    assert codes(result) == {"answer.wrong", "hit.lost"}


def test_a_failure_outranks_what_is_not_known() -> None:
    events = passing()
    build.find(events, "asked", **place(LITERAL)).update(hit_tokens_vllm=64)
    del events[-1]
    result = build.judged(SMALL, events)
    assert result["verdict"] == "FAIL"
    assert codes(result) == {"hit.unsafe", "run.not_finished"}


def test_a_step_is_told_with_its_numbers() -> None:
    events = passing()
    build.find(events, "asked", **place(OWN), step=1)["output_token_ids"] = [2, 9]
    cell = cells(build.judged(SMALL, events))[OWN, "mp", "none"]
    step = cell["steps"][1]
    assert (step["required"], step["hit_tokens_server"], step["hit_tokens_vllm"]) == (
        "hit",
        192,
        192,
    )
    assert step["expected_token_ids"][0] == 2
    assert (step["output_token_ids"], step["first_difference"]) == ([2, 9], 1)
    assert (step["reasons"], step["top2_margin"]) == (["answer.wrong"], 0.5)
    assert cell["stores"][0]["tokens"] == 192


def stored_result() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(build.judged(SMALL, passing())))
    return result


def test_a_stored_result_that_is_the_same_changes_nothing() -> None:
    history = build.history(passing())
    assert judge_again(SMALL, history, stored_result()) == stored_result()


def test_a_stored_result_that_differs_fails_and_says_where() -> None:
    history = build.history(passing())
    found = judge_again(SMALL, history, stored_result() | {"weak_answers": 7, "more": 1})
    assert found["verdict"] == "FAIL"
    assert found["reasons"][-1]["message"].endswith("in more, weak_answers")
    assert found["weak_answers"] == 0
    validate(found, "matrix-result.v1")


def test_no_stored_result_is_inconclusive() -> None:
    found = judge_again(SMALL, build.history(passing()), None)
    assert (found["verdict"], codes(found)) == ("INCONCLUSIVE", {"result.missing"})
