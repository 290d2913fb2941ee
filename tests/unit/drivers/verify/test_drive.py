# SPDX-License-Identifier: Apache-2.0
"""What each engine is asked, in which order and scope, and what is written down of it."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import Any

import pytest

from kvseal.drivers.verify import drive
from kvseal.engines.lmcache import CacheServer
from kvseal.errors import EngineError
from kvseal.workload.probes import planned_generations

TAG = "lmcache.tag.kvseal_scope"


def calls(stage: Any, target: str) -> list[tuple[str, str, int]]:
    """Return probe, kind and repetition of each answer of `target`, in order."""
    return [
        (event["probe"], event["kind"], event["repetition"])
        for event in stage.events("answer")
        if event["target"] == target
    ]


@pytest.mark.parametrize(("suite", "probes", "total"), [("standard", 24, 96), ("smoke", 6, 24)])
def test_the_budget_of_one_target(stage: Any, suite: str, probes: int, total: int) -> None:
    prepared = stage.prepared(suite)
    report = stage.verify(prepared)
    assert len(prepared.probes) == probes
    assert len(stage.asked) == total
    assert report["generations"]["completed"] == report["generations"]["planned"] == {
        "control": probes, "native": total - probes, "total": total,
    }  # fmt: skip
    assert report["verdict"] == "PASS"
    assert report["reasons"] == []


def test_the_budget_of_the_paired_acceptance(stage: Any) -> None:
    report = stage.verify(stage.lmcache("acceptance", compare_native=True))
    assert report["generations"]["completed"] == {
        "control": 4, "lmcache": 10, "native": 10, "total": 24,
    }  # fmt: skip
    assert report["verdict"] == "PASS"


@pytest.mark.parametrize("kind", ["native", "lmcache", "mp"])
def test_a_target_answers_each_probe_cold_and_then_from_its_cache(stage: Any, kind: str) -> None:
    prepared = stage.prepared() if kind == "native" else getattr(stage, kind)()
    report = stage.verify(prepared)
    assert calls(stage, kind) == [
        (probe.id, "cold" if number == 0 else "reuse", number)
        for probe in prepared.probes
        for number in range(probe.reuse_count + 1)
    ]
    assert [question.token_ids for question in stage.questions(kind)] == [
        list(probe.token_ids) for probe in prepared.probes for _ in range(probe.reuse_count + 1)
    ]
    assert report["verdict"] == "PASS"
    completed = [e["probe"] for e in stage.events("probe_completed") if e["target"] == kind]
    assert completed == [probe.id for probe in prepared.probes]


def test_each_prompt_s_control_is_asked_by_both_its_probes(stage: Any) -> None:
    prepared = stage.prepared()
    stage.verify(prepared)
    assert calls(stage, "control") == [(probe.id, "control", 0) for probe in prepared.probes]


def test_a_control_that_has_to_be_repeated_comes_round_again(stage: Any) -> None:
    prepared = stage.prepared(reuse_counts=(2,))
    stage.verify(prepared)
    names = [probe.id for probe in prepared.probes]
    assert calls(stage, "control") == [(name, "control", 0) for name in names] + [
        (name, "control", 1) for name in names
    ]
    events = [e for e in stage.events() if e.fields.get("target") == "control"]
    first = next(n for n, e in enumerate(events) if e.name == "probe_completed")
    answers = [e for e in events[:first] if e.name == "answer"]
    assert len(answers) == len(names) + 1, "no probe is complete before its second round"


def test_control_first_and_each_target_alone(stage: Any) -> None:
    stage.verify(stage.lmcache(compare_native=True))
    assert [entry.target for entry in stage.started] == ["control", "lmcache", "native"]
    names = [
        (event.name, event["target"])
        for event in stage.events()
        if event.name in ("target_started", "target_finished")
    ]
    assert names == [
        (name, target)
        for target in ("control", "lmcache", "native")
        for name in ("target_started", "target_finished")
    ]
    assert stage.events()[-1].name == "verification_finished"


def test_control_only(stage: Any) -> None:
    report = stage.verify(stage.prepared(native_prefix_caching=False))
    assert [entry.target for entry in stage.started] == ["control"]
    assert report["verdict"] == "control_only_pass"
    assert report["reuse_tested"] is False
    assert report["exit_status"] == 0


def test_what_an_answer_records(stage: Any) -> None:
    prepared = stage.prepared()
    stage.verify(prepared)
    probe = prepared.probes[0]
    answer = next(e for e in stage.events("answer") if e["target"] == "native")
    first = sum(probe.token_ids) % 1000
    assert answer["token_ids"] == [first, first + 1, first + 2, first + 3]
    assert answer["cached_tokens"] == 0
    assert answer["server_hit_tokens"] is None
    assert answer["finish_reason"] == "length"
    assert answer["top2"][0] == [[first, -0.25], [first + 1, -4.0]]
    assert answer["prompt_token_ids_sha256"] == probe.to_json()["token_ids_sha256"]
    assert "seconds" not in answer.fields


def test_what_the_engine_says_it_was_asked_is_what_is_recorded(stage: Any) -> None:
    def elsewhere(engine: Any, question: Any, answer: Any) -> Any:
        return drive.Answer(**{**vars(answer), "prompt_token_ids": [1, 2, 3]})

    stage.on_ask["native"] = elsewhere
    report = stage.verify(stage.prepared())
    assert report["verdict"] == "INCONCLUSIVE"
    digests = {e["prompt_token_ids_sha256"] for e in stage.events("answer")}
    assert len(digests) == 4, "three prompts and the other one"


@pytest.mark.parametrize("suite", ["smoke", "standard", "acceptance"])
def test_a_scope_belongs_to_one_probe_or_to_a_pair(stage: Any, suite: str) -> None:
    prepared = stage.lmcache(suite, compare_native=True)
    stage.verify(prepared)
    run_id = stage.started[0].run_id
    for target in ("lmcache", "native"):
        asked = iter(stage.questions(target))
        for probe in prepared.probes:
            for _ in range(probe.reuse_count + 1):
                assert next(asked).scope == f"a-tenant.{run_id}.{probe.scope}"
        assert next(asked, None) is None
    sizes = Counter(probe.scope for probe in prepared.probes)
    shared = [probe for probe in prepared.probes if probe.cold_prefix_tokens]
    assert sum(size > 1 for size in sizes.values()) == len(shared)
    assert max(sizes.values()) <= 2
    if suite == "standard":
        assert shared, "the standard suite has a pair with a shared prefix"


def test_the_scope_is_salt_and_for_lmcache_a_tag_as_well(stage: Any) -> None:
    stage.verify(stage.lmcache(compare_native=True))
    for question in stage.questions("lmcache"):
        assert question.kv_transfer_params == {TAG: question.scope}
    for target in ("control", "native"):
        for question in stage.questions(target):
            assert question.kv_transfer_params == {}
            assert question.scope


def test_a_server_goes_by_the_salt(stage: Any) -> None:
    stage.verify(stage.mp())
    scopes = {question.scope for question in stage.questions("mp")}
    assert {salt for _, salt in stage.server.salts} == scopes
    assert {model for model, _ in stage.server.salts} == {"/models/tiny"}
    assert all(question.kv_transfer_params == {} for question in stage.questions("mp"))


def test_two_runs_share_no_scope(stage: Any) -> None:
    stage.verify(stage.prepared())
    stage.places = stage.places.__class__(stage.folder / "b.json", stage.folder / "b.evidence")
    stage.verify(stage.prepared())
    first, second = stage.started[0].run_id, stage.started[-1].run_id
    assert first != second
    assert {entry.run_id for entry in stage.started} == {first, second}


def test_sampling_is_the_request_s(stage: Any) -> None:
    stage.verify(stage.prepared(max_tokens=7, seed=5))
    assert {(question.max_tokens, question.seed) for _, question in stage.asked} == {(7, 5)}


def test_each_engine_s_log_and_environment(stage: Any) -> None:
    stage.verify(stage.lmcache(compare_native=True, cpu_kv_gib=3, engine_start_seconds=77))
    for entry in stage.started:
        assert entry.log == stage.places.logs / f"{entry.target}.log"
        assert entry.environment["VLLM_CPU_KVCACHE_SPACE"] == "3"
        assert entry.start_seconds == 77
        named = entry.environment.get("LMCACHE_CONFIG_FILE")
        assert named == (str(stage.folder / "lmcache.yaml") if entry.target == "lmcache" else None)
    logs = {event["target"]: event["log"] for event in stage.events("target_finished")}
    assert logs == {target: f"logs/{target}.log" for target in ("control", "lmcache", "native")}
    assert {event["status"] for event in stage.events("target_finished")} == {0}


def test_a_server_is_there_for_its_target_alone(stage: Any) -> None:
    seen = []
    for target in ("control", "mp", "native"):
        stage.on_start[target] = lambda engine: seen.append(
            (engine.target, [entry.alive for entry in stage.servers])
        )
    server = {"server_port": 7, "server_http_port": 8, "server_start_seconds": 9}
    stage.verify(stage.mp(compare_native=True, cache_gib=5, visible_devices="1", **server))
    assert seen == [("control", []), ("mp", [True]), ("native", [False])]
    (started,) = stage.servers
    assert started.server == CacheServer(
        chunk_size_tokens=64,
        l1_gib=5,
        port=7,
        http_port=8,
        visible_devices="1",
        queries=False,
        start_timeout_seconds=9,
    )
    assert started.log == stage.places.logs / "lmcache-server.log"
    assert started.run_id == stage.started[0].run_id
    engines = {event["target"]: event["engine"] for event in stage.events("target_started")}
    assert engines["mp"]["lmcache_server"] == {
        "log": "logs/lmcache-server.log",
        "config": {"chunk_size": 64},
    }
    assert "lmcache_server" not in engines["control"]


def test_a_server_s_own_count_of_each_answer(stage: Any) -> None:
    prepared = stage.mp("standard")
    report = stage.verify(prepared)
    assert report["verdict"] == "PASS"
    for event in stage.events("answer"):
        if event["target"] != "mp":
            assert event["server_hit_tokens"] is None
            continue
        cached = event["cached_tokens"]
        assert event["server_hit_tokens"] == -(-cached // 64) * 64


def test_a_reuse_waits_for_what_the_cold_answer_stores(stage: Any) -> None:
    """A chunk that arrives after its answer would be missed by a reuse that comes too soon."""
    stage.server.lag = 3
    served = stage.server.serve

    def serve(question: Any, hits: int) -> None:
        assert stage.server.arriving == [], "asked while chunks of this scope were on their way"
        served(question, hits)

    stage.server.serve = serve
    prepared = stage.mp("standard")
    assert stage.verify(prepared)["verdict"] == "PASS"
    scopes = {probe.scope: 0 for probe in prepared.probes}
    for probe in prepared.probes:
        scopes[probe.scope] += probe.tokens // 64 - probe.cold_prefix_tokens // 64
    assert stage.server.objects == sum(scopes.values())


def test_chunks_that_never_arrive_are_waited_for_so_long(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "STORE_SECONDS", 0.05)
    stage.server.lag = 10**9
    report = stage.verify(stage.first(stage.mp(), 1))
    assert report["generations"]["completed"]["mp"] == 2


def test_hits_that_the_server_knows_nothing_of_are_no_pass(stage: Any) -> None:
    stage.on_ask["mp"] = lambda engine, question, answer: setattr(stage.server, "loaded", 0)
    report = stage.verify(stage.mp())
    assert report["verdict"] == "INCONCLUSIVE"
    assert {reason["code"] for reason in report["reasons"]} == {"hits.server_differ"}


def test_a_server_whose_totals_fall_ends_its_target_alone(stage: Any) -> None:
    stage.on_ask["mp"] = lambda engine, question, answer: setattr(stage.server, "loaded", -1)
    prepared = stage.mp(compare_native=True)
    report = stage.verify(prepared)
    (missing,) = stage.events("answer_missing")
    assert (missing["target"], missing["probe"]) == ("mp", prepared.probes[0].id)
    (error,) = stage.events("error")
    assert (error["target"], error["where"]) == ("mp", "EvidenceError")
    verdicts = {entry["target"]: entry["verdict"] for entry in report["targets"]}
    assert verdicts == {"mp": "inconclusive", "native": "pass"}


class Observer:
    """Sees that it is there with the engine, and when it is called."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.calls: list[tuple[str, str, int, int]] = []
        self.there: list[tuple[str, str, Any]] = []
        self.scopes: set[str] = set()

    @contextmanager
    def attached(self, target: str, server: Any) -> Any:
        self.there.append(("in", target, server))
        assert self.stage.running == [target]

        def before_reuse(probe: Any, repetition: int, scope: str) -> None:
            asked = len(self.stage.questions(target))
            self.calls.append((target, probe.id, repetition, asked))
            self.scopes.add(scope)

        yield before_reuse
        assert self.stage.running == [target], "it leaves before the engine does"
        self.there.append(("out", target, server))


def test_an_observer_is_called_before_each_reuse_and_nothing_else(stage: Any) -> None:
    prepared = stage.mp(compare_native=True)
    observer = Observer(stage)
    stage.verify(prepared, observer=observer)
    expected, asked = [], 0
    for probe in prepared.probes:
        asked += 1
        for repetition in range(1, probe.reuse_count + 1):
            expected.append((probe.id, repetition, asked))
            asked += 1
    for target in ("mp", "native"):
        assert [call[1:] for call in observer.calls if call[0] == target] == expected
    assert all(call[0] != "control" for call in observer.calls)
    assert observer.scopes == {question.scope for question in stage.questions("mp")}
    assert [(what, target, server is not None) for what, target, server in observer.there] == [
        (what, target, target == "mp")
        for target in ("control", "mp", "native")
        for what in ("in", "out")
    ]


def test_what_an_observer_does_not_survive_ends_the_run(stage: Any) -> None:
    class Broken:
        @contextmanager
        def attached(self, target: str, server: Any) -> Any:
            def before_reuse(*_: Any) -> None:
                raise RuntimeError("not all chunks are stored")

            yield before_reuse

    with pytest.raises(RuntimeError, match="not all chunks"):
        stage.verify(stage.prepared(), observer=Broken())
    assert stage.events()[-1]["message"] == "RuntimeError('not all chunks are stored')"


@pytest.mark.parametrize("target", ["lmcache", "native"])
@pytest.mark.parametrize("where", ["start", "third answer"])
def test_a_target_that_fails_does_not_keep_the_other_from_its_turn(
    stage: Any, target: str, where: str
) -> None:
    def fail(engine: Any, *_: Any) -> None:
        if where == "start" or len(stage.questions(target)) == 3:
            raise EngineError("no room")

    (stage.on_start if where == "start" else stage.on_ask)[target] = fail
    prepared = stage.lmcache(compare_native=True)
    report = stage.verify(prepared)
    other = {"lmcache": "native", "native": "lmcache"}[target]
    verdicts = {entry["target"]: entry["verdict"] for entry in report["targets"]}
    assert verdicts == {target: "inconclusive", other: "pass"}
    assert (report["verdict"], report["exit_status"], report["complete"]) == (
        "INCONCLUSIVE",
        2,
        True,
    )
    (error,) = stage.events("error")
    assert (error["target"], error["where"], error["message"]) == (
        target,
        "EngineError",
        "no room",
    )
    missing = stage.events("answer_missing")
    finished = [event["target"] for event in stage.events("target_finished")]
    if where == "start":
        assert missing == []
        assert target not in finished, "what did not start has not ended"
    else:
        assert [
            (e["target"], e["probe"], e["kind"], e["repetition"], e["reason"]) for e in missing
        ] == [(target, prepared.probes[1].id, "cold", 0, "no room")]
        assert target in finished
    assert len(stage.questions(target)) == (0 if where == "start" else 3)


@pytest.mark.parametrize("where", ["start", "an answer"])
def test_a_control_that_fails_stops_it_all(stage: Any, where: str) -> None:
    def fail(engine: Any, *_: Any) -> None:
        raise EngineError("no room")

    (stage.on_start if where == "start" else stage.on_ask)["control"] = fail
    with pytest.raises(EngineError, match="no room"):
        stage.verify(stage.prepared())
    assert [entry.target for entry in stage.started] == ["control"]
    errors = [(event["target"], event["message"]) for event in stage.events("error")]
    assert errors == [("control", "no room"), (None, "no room")]
    assert not stage.events("verification_finished")


DISQUALIFYING: dict[str, Any] = {
    "another connector": lambda found: found["connector"].update(worker="other.Connector"),
    "no connector": lambda found: found["connector"].update(scheduler=None),
    "both caches": lambda found: found["cache"].update(enable_prefix_caching=True),
    "another block": lambda found: found["cache"].update(block_size=32),
    "another chunk": lambda found: found["lmcache"]["effective"].update(chunk_size=128),
}


@pytest.mark.parametrize("what", DISQUALIFYING)
def test_an_engine_that_is_not_the_one_asked_for_is_asked_nothing(stage: Any, what: str) -> None:
    stage.on_start["lmcache"] = lambda engine: DISQUALIFYING[what](engine.described)
    report = stage.verify(stage.lmcache(compare_native=True))
    assert stage.questions("lmcache") == []
    (event,) = stage.events("disqualified")
    assert event["target"] == "lmcache"
    verdicts = {entry["target"]: entry["verdict"] for entry in report["targets"]}
    assert verdicts == {"lmcache": "inconclusive", "native": "pass"}
    assert report["exit_status"] == 2


def test_a_control_that_caches_is_no_control(stage: Any) -> None:
    stage.on_start["control"] = lambda engine: engine.described["cache"].update(
        enable_prefix_caching=True
    )
    with pytest.raises(EngineError, match="the control is not the one that was asked for"):
        stage.verify(stage.prepared())
    assert [entry.target for entry in stage.started] == ["control"]
    assert stage.asked == []
    (event,) = stage.events("disqualified")
    assert (event["target"], event["reason"]) == ("control", "enable_prefix_caching is True, "
                                                  "not False")  # fmt: skip


def test_a_connector_that_gives_up_at_the_start(stage: Any) -> None:
    stage.on_start["lmcache"] = lambda engine: engine.write(
        "Traceback (most recent call last):\n  File\nRuntimeError: no connector.\n"
        ". System will operate in degraded mode\n"
    )
    report = stage.verify(stage.lmcache())
    (event,) = stage.events("disqualified")
    assert event["reason"] == (
        "the cache was given up and everything recomputed: RuntimeError: no connector. "
        "System will operate in degraded mode"
    )
    assert stage.questions("lmcache") == []
    assert report["exit_status"] == 2


def test_a_connector_that_gives_up_on_the_way(stage: Any) -> None:
    def give_up(engine: Any, question: Any, answer: Any) -> None:
        if len(stage.questions("lmcache")) == 4:
            engine.write("WARNING lmcache: Failed to retrieve 2 chunks\n")

    stage.on_ask["lmcache"] = give_up
    prepared = stage.lmcache()
    report = stage.verify(prepared)
    assert len(stage.questions("lmcache")) == 4, "nothing is asked after that"
    (warning,) = stage.events("engine_warning")
    assert warning["probe"] == prepared.probes[1].id
    assert warning["line"] == "WARNING lmcache: Failed to retrieve 2 chunks"
    (event,) = stage.events("disqualified")
    assert event["reason"].startswith("a retrieve failed: WARNING lmcache")
    completed = [e["probe"] for e in stage.events("probe_completed") if e["target"] == "lmcache"]
    assert completed == [prepared.probes[0].id]
    assert report["verdict"] == "INCONCLUSIVE"


def test_giving_up_at_a_probe_s_last_answer_leaves_it_incomplete(stage: Any) -> None:
    prepared = stage.first(stage.lmcache(), 1)

    def give_up(engine: Any, question: Any, answer: Any) -> None:
        if len(stage.questions("lmcache")) == prepared.probes[0].reuse_count + 1:
            engine.write("degraded mode\n")

    stage.on_ask["lmcache"] = give_up
    stage.verify(prepared)
    assert [e["target"] for e in stage.events("probe_completed")] == ["control"]


def test_a_warning_at_the_start_belongs_to_no_probe_and_stops_nothing(stage: Any) -> None:
    stage.on_start["native"] = lambda engine: engine.write("WARNING KVConnector is new\n")
    report = stage.verify(stage.prepared())
    (warning,) = stage.events("engine_warning")
    assert (warning["target"], warning["probe"]) == ("native", None)
    assert report["verdict"] == "PASS"


def test_a_token_that_differs_fails(stage: Any) -> None:
    def differ(engine: Any, question: Any, answer: Any) -> Any:
        if not answer.cached_tokens:
            return None
        tokens = [*answer.token_ids[:2], 9999, *answer.token_ids[3:]]
        return drive.Answer(**{**vars(answer), "token_ids": tokens})

    stage.on_ask["native"] = differ
    report = stage.verify(stage.prepared())
    assert (report["verdict"], report["exit_status"]) == ("FAIL", 1)


@pytest.mark.parametrize("suite", ["smoke", "standard"])
def test_the_report_is_made_anew_after_each_probe_and_passes_at_the_end_alone(
    stage: Any, refreshed: list[dict[str, Any]], suite: str
) -> None:
    prepared = stage.prepared(suite)
    stage.verify(prepared)
    planned = planned_generations(suite, prepared.probes, prepared.targets)
    assert planned["total"] == len(stage.asked)
    completed = [report["generations"]["completed"]["total"] for report in refreshed]
    probes = len(prepared.probes)
    # At the start, after each probe of control and target, after each of these, at the end.
    assert len(refreshed) == 1 + 2 * (probes + 1) + 1
    assert completed == sorted(completed)
    assert completed[0] == 0
    assert len(set(completed)) == 1 + 2 * probes
    assert [report["verdict"] for report in refreshed] == ["INCONCLUSIVE"] * (
        len(refreshed) - 1
    ) + ["PASS"]
    assert [report["complete"] for report in refreshed] == [False] * (len(refreshed) - 1) + [True]
    assert not any(report["claim_eligible"] for report in refreshed)
