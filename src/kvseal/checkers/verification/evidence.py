# SPDX-License-Identifier: Apache-2.0
"""A verification's history sorted for the checks: request, probes, plan, and answers by place.

What is recorded twice counts for nothing, and what was not planned is named:
both are reasons of their own, so that no check picks the record it likes and
none passes one over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvseal.checkers.verification.plan import AnswerKey, Plan, make_plan
from kvseal.checkers.verification.reasons import Reason, answer_name, reason
from kvseal.checkers.verification.request import Request, read_request
from kvseal.records.history import Event, History
from kvseal.spec.contracts import CONTROL

ONCE = ("verification_started", "manifest", "environment", "verification_finished")


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run. `answers` and `missing` hold only what was planned, once."""

    history: History
    request: Request
    plan: Plan
    started: Event | None
    manifest: Event | None
    environment: Event | None
    answers: Mapping[AnswerKey, Event]
    missing: Mapping[AnswerKey, Event]
    starts: Mapping[str, Event]
    ends: Mapping[str, Event]
    completed: Mapping[tuple[str, str], Event]
    reasons: tuple[Reason, ...] = field(default=())

    def of(self, name: str, target: str) -> list[Event]:
        """Return the events called `name` about `target`, in order."""
        return [event for event in self.history.named(name) if event["target"] == target]


def sort_evidence(history: History) -> Evidence:
    """Return `history` by subject. Never raises: what can't be read is a reason."""
    found: list[Reason] = []
    single = dict(_single(history, found))
    request = read_request(single.get("verification_started"), found)
    plan = make_plan(request, single.get("manifest"), found)
    found += _strangers(history, request, plan)
    answers, missing = _answers(history, request, plan, found)
    return Evidence(
        history=history,
        request=request,
        plan=plan,
        started=single.get("verification_started"),
        manifest=single.get("manifest"),
        environment=single.get("environment"),
        answers=answers,
        missing=missing,
        starts=_by_target(history, "target_started", found),
        ends=_by_target(history, "target_finished", found),
        completed=_completed(history, found),
        reasons=tuple(found),
    )


def _single(history: History, found: list[Reason]) -> Iterator[tuple[str, Event]]:
    for name in ONCE:
        events = history.named(name)
        if len(events) > 1:
            found.append(reason("run.event_repeated", event=name, count=len(events)))
        elif events:
            yield name, events[0]


def _by_target(history: History, name: str, found: list[Reason]) -> dict[str, Event]:
    events: dict[str, list[Event]] = defaultdict(list)
    for event in history.named(name):
        events[event["target"]].append(event)
    for target, several in events.items():
        if len(several) > 1:
            found.append(
                reason("run.event_repeated", target=target, event=name, count=len(several))
            )
    return {target: several[0] for target, several in events.items() if len(several) == 1}


def _completed(history: History, found: list[Reason]) -> dict[tuple[str, str], Event]:
    events: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in history.named("probe_completed"):
        events[event["target"], event["probe"]].append(event)
    for (target, probe), several in events.items():
        if len(several) > 1:
            found.append(
                reason(
                    "run.event_repeated",
                    target=target,
                    probe=probe,
                    event="probe_completed",
                    count=len(several),
                )
            )
    return {key: several[0] for key, several in events.items() if len(several) == 1}


def _strangers(history: History, request: Request, plan: Plan) -> Iterator[Reason]:
    """Yield a reason for each target and each probe that nobody asked for."""
    targets: Counter[str] = Counter()
    probes: Counter[tuple[str, str]] = Counter()
    for event in history.events:
        target, probe = event.fields.get("target"), event.fields.get("probe")
        if target is None:
            continue
        if target not in (CONTROL, *request.targets):
            targets[target] += 1
        elif probe is not None and probe not in plan.probes:
            probes[target, probe] += 1
    for target, count in targets.items():
        yield reason("target.unexpected", target=target, count=count)
    for (target, probe), count in probes.items():
        yield reason("probe.unexpected", target=target, probe=probe, count=count)


def _answers(
    history: History, request: Request, plan: Plan, found: list[Reason]
) -> tuple[dict[AnswerKey, Event], dict[AnswerKey, Event]]:
    """Return the planned answers that are there once, and those recorded as missing.

    An answer that is also recorded as missing is recorded twice.
    """
    places: dict[AnswerKey, list[Event]] = defaultdict(list)
    for event in history.events:
        if event.name in ("answer", "answer_missing"):
            places[AnswerKey.of(event)].append(event)
    answers: dict[AnswerKey, Event] = {}
    missing: dict[AnswerKey, Event] = {}
    for key, events in places.items():
        known = key.probe in plan.probes and key.target in (CONTROL, *request.targets)
        about = {"target": key.target, "probe": key.probe}
        name = answer_name(key.kind, key.repetition)
        if known and key not in plan.keys:
            found.append(reason("answer.unexpected", **about, answer=name))
        elif len(events) > 1:
            found.append(reason("answer.repeated", **about, answer=name, count=len(events)))
        elif known:
            (answers if events[0].name == "answer" else missing)[key] = events[0]
    return answers, missing
