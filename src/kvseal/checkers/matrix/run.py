# SPDX-License-Identifier: Apache-2.0
"""Did the run as a whole take place? Start to end, on engines that started, one control."""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.checkers.matrix.evidence import Evidence, single
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.workload.matrix.case import SERVED

ONCE = ("run_started", "environment", "run_finished")


def check_run(evidence: Evidence) -> Iterator[Reason]:
    """Yield what is wrong with the run as a whole."""
    yield from evidence.reasons
    yield from _ends(evidence)
    yield from _engines(evidence)
    for event in evidence.history.named("backend_unusable"):
        values = {name: event[name] for name in ("backend", "message", "remedy")}
        yield reason("backend.unusable", **values)
    for name in evidence.spec.matrix.cases:
        if name not in evidence.cases:
            yield reason("case.unknown", name=name)
    if not evidence.places:
        yield reason("case.none")


def _ends(evidence: Evidence) -> Iterator[Reason]:
    history, own = evidence.history, evidence.spec.sha256()
    yield from single(history, ONCE)
    started = history.named("run_started")
    if not started:
        yield reason("run.not_started")
    for event in started:
        if event["spec_sha256"] != own:
            yield reason("run.spec_differs", started=event["spec_sha256"], stored=own)
        if event.seq != 0:
            yield reason("run.out_of_order", event="run_started")
    if not history.named("environment"):
        yield reason("run.environment_missing")
    for event in history.named("error"):
        yield reason("run.error", where=event["where"], message=event["message"])
    for event in history.named("interrupted"):
        yield reason("run.interrupted", signal=event["signal"])
    if history.truncated:
        yield reason("run.truncated")
    if not history.events or history.events[-1].name != "run_finished":
        yield reason("run.not_finished")


def _engines(evidence: Evidence) -> Iterator[Reason]:
    """Every backend with engines has its own before its first answer, and there is a control."""
    started = evidence.history.named("engines_started")
    judged = {place.backend for place in evidence.places}
    served = [name for name in SERVED if name in judged]
    asked = evidence.history.named("asked")
    for backend in served:
        own = [e.seq for e in started if e["engine"] == "main" and e["backend"] == backend]
        first = min((event.seq for event in asked if event["backend"] == backend), default=None)
        if not own or (first is not None and own[0] > first):
            yield reason("engines.missing", engine=f"the engine of {backend} under test")
    known = {event["engine"] for event in started}
    if served and "control" not in known:
        yield reason("engines.missing", engine="the control")
    if evidence.spec.matrix.mixed_requests and "plain" not in known:
        yield reason("engines.missing", engine="the plain engine of the mixed requests")
