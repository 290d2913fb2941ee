# SPDX-License-Identifier: Apache-2.0
"""Makes the history of a verification that passes, for tests to use or to damage.

Everything goes through the program's own builders; only the engines' figures are
made up here. Loaded by path, as the tests are no package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal.checkers.verification.document import document
from kvseal.checkers.verification.hits import expected_hits, expected_server_hits
from kvseal.records import verification as new
from kvseal.records.history import Event, History, HistoryWriter, read_history
from kvseal.records.places import Places
from kvseal.store import LineFile, create_run_folder, write_json, write_manifest, write_text
from kvseal.workload.probes import Geometry, Probe, control_repetitions, planned_generations

GEOMETRY = Geometry(chunk_tokens=256, block_tokens=16, max_model_len=2048)
ANSWER = (11, 12, 13, 14)
FIRST, SECOND = -0.5, -1.5
"""Log-probabilities of the token that is taken and of its runner-up, which is 100 more."""


def probe(
    tokens: int, reuse_count: int, *, shape: str = "raw", prompt: str | None = None, **fields: Any
) -> Probe:
    """A probe of `tokens` tokens; those of one length send the same prompt."""
    name = f"{shape}-{tokens}-x{reuse_count}"
    values: dict[str, Any] = {
        "id": name, "case": "test", "prompt_format": shape, "reuse_count": reuse_count,
        "prompt": prompt or f"{shape}-{tokens}", "scope": name, "cold_prefix_tokens": 0,
        "token_ids": tuple(range(1000 * len(shape) + tokens, 1000 * len(shape) + 2 * tokens)),
    }  # fmt: skip
    return Probe(**(values | fields))


PAIR = (probe(513, 1), probe(513, 2))
"""One prompt with two reuse counts: its control is asked by both."""
TINY = probe(255, 1)
"""Less than a chunk, so nothing that LMCache could reuse; its control is asked twice."""
PROBES = (*PAIR, TINY)
TARGETS = ("native", "lmcache")


def top2(token_ids: Sequence[int], second: float = SECOND) -> list[list[list[float]]]:
    """The two likeliest tokens at each step: the one taken, and 100 more."""
    return [[[token, FIRST], [token + 100, second]] for token in token_ids]


def answer(
    target: str, asked: Probe, kind: str, repetition: int, geometry: Geometry = GEOMETRY
) -> dict[str, Any]:
    """The true answer, with exactly the hits it has to have."""
    hits = 0 if kind == "control" else expected_hits(target, asked, kind, geometry)
    return new.answer(
        target=target,
        probe=asked.id,
        kind=kind,
        repetition=repetition,
        prompt_token_ids=asked.token_ids,
        token_ids=ANSWER,
        cached_tokens=hits,
        server_hit_tokens=expected_server_hits(hits, geometry) if target == "mp" else None,
        finish_reason="length",
        top2=top2(ANSWER),
    )


def request(targets: Sequence[str] = TARGETS, **changes: Any) -> dict[str, Any]:
    """What the judgement reads of a request."""
    return {
        "targets": list(targets), "suite": "smoke", "dtype": "float16", "max_tokens": len(ANSWER),
        "accepted_deviations": [], "fixture": None, "evidence_directory": "/e/run",
        **changes,
    }  # fmt: skip


def passing_events(
    probes: Sequence[Probe] = PROBES, targets: Sequence[str] = TARGETS, **changes: Any
) -> list[dict[str, Any]]:
    """The events of a run in which everything went as it must; `changes` are of the request."""
    asked = request(targets, **changes)
    events = [
        new.verification_started(
            request=asked,
            contract={"name": "strict", "statement": "a <b>GPU</b>", "deviations": []},
            kvseal_version="0.1.0",
            host={"system": "Linux"},
        ),
        new.manifest(
            probes=[entry.to_json() for entry in probes],
            generations_planned=planned_generations(asked["suite"], probes, targets),
            geometry=GEOMETRY.to_json(),
            sampling={"temperature": 0},
        ),
        new.environment(details={"vllm": "0.28.0", "gpu": {"name": "L4", "capability": "8.9"}}),
        new.target_started(target="control", engine={"enable_prefix_caching": False}),
    ]
    again = control_repetitions(asked["suite"], probes)
    events += [answer("control", entry, "control", 0) for entry in probes]
    events += [answer("control", entry, "control", 1) for entry in probes if again[entry.id] > 1]
    events += _ended("control", probes)
    for target in targets:
        events.append(new.target_started(target=target, engine={"target": target}))
        for entry in probes:
            events.append(answer(target, entry, "cold", 0))
            events += [
                answer(target, entry, "reuse", count) for count in range(1, entry.reuse_count + 1)
            ]
            events.append(new.probe_completed(target=target, probe=entry.id))
        events.append(new.target_finished(target=target, status=0, log=f"logs/{target}.log"))
    return [*events, new.verification_finished()]


def _ended(target: str, probes: Sequence[Probe]) -> list[dict[str, Any]]:
    return [
        *(new.probe_completed(target=target, probe=entry.id) for entry in probes),
        new.target_finished(target=target, status=0, log=f"logs/{target}.log"),
    ]


def one(events: list[dict[str, Any]], name: str, **about: Any) -> dict[str, Any]:
    """The one event called `name` with these fields."""
    found = [
        event
        for event in events
        if event["event"] == name and all(event[key] == value for key, value in about.items())
    ]
    assert len(found) == 1, (name, about, len(found))
    return found[0]


def answer_of(
    events: list[dict[str, Any]], target: str, name: str, kind: str, repetition: int = 0
) -> dict[str, Any]:
    """The one answer at this place."""
    return one(events, "answer", target=target, probe=name, kind=kind, repetition=repetition)


def give(event: dict[str, Any], *token_ids: int, **fields: Any) -> None:
    """Make an answer another one, with the runners-up that go with it."""
    event.update({"token_ids": list(token_ids), "top2": top2(token_ids)} | fields)


def shift(event: dict[str, Any], distance: float) -> None:
    """Move both log-probabilities of each step by `distance`, so that no margin changes."""
    event["top2"] = [[[token, value + distance] for token, value in pair] for pair in event["top2"]]


def history(events: Sequence[dict[str, Any]], truncated: bool = False) -> History:
    """`events` as a history, each at its second."""
    return History(
        tuple(
            Event(
                seq,
                f"2026-11-30T12:{seq // 60:02}:{seq % 60:02}.000Z",
                event["event"],
                {key: value for key, value in event.items() if key != "event"},
            )
            for seq, event in enumerate(events)
        ),
        truncated,
    )


def report(events: Sequence[dict[str, Any]], truncated: bool = False) -> dict[str, Any]:
    """The report of these events."""
    return document(history(events, truncated))


def result(found: dict[str, Any], target: str, name: str) -> dict[str, Any]:
    """What the report says of one probe of a target."""
    entries = {entry["target"]: entry for entry in (found["control"], *found["targets"])}
    (probe_result,) = [entry for entry in entries[target]["probes"] if entry["probe"] == name]
    return probe_result


def keep(places: Places, events: Sequence[dict[str, Any]], *, finished: bool = True) -> Places:
    """Write a verification as `kvseal verify` leaves it; one not `finished` was killed."""
    create_run_folder(places.folder)
    with LineFile(places.history) as lines:
        writer = HistoryWriter(lines, new.TABLE)
        for event in events:
            writer.append(event)
    write_text(places.logs / "control.log", "INFO\n")
    write_json(places.report, document(read_history(places.history, new.TABLE)))
    if finished:
        write_manifest(places.folder)
    return places
