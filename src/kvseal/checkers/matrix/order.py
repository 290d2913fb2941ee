# SPDX-License-Identifier: Apache-2.0
"""Is a cell whole, and did its stores, its restart and its steps come in their order?

Only a restart between the last store and the first ask makes a cell the one it
is called; only a step after the one before it sees what that one left behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.checkers.matrix.evidence import CellEvents, Evidence
from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.records.history import Event
from kvseal.workload.matrix import Act, Case
from kvseal.workload.matrix.case import BEHIND, NONE


def check_order(evidence: Evidence, place: Place) -> Iterator[Reason]:
    """Yield what of a cell is missing, doubled, not in the case, or out of its place."""
    case, cell = evidence.cases[place.case], evidence.of(place)
    if not cell.cells:
        yield reason("cell.missing", place)
        if not cell.stored and not cell.steps:
            return
    elif cell.begun is None:
        yield reason("cell.repeated", place, count=len(cell.cells))
    yield from _stores(place, case, cell)
    yield from _steps(place, case, cell)
    if cell.begun is not None:
        yield from _restarts(evidence, place, case, cell, cell.begun)


def _stores(place: Place, case: Case, cell: CellEvents) -> Iterator[Reason]:
    recorded = [event["artifact"] for event in cell.stored]
    for number, name in enumerate(case.store):
        if number >= len(recorded) or recorded[number] != name:
            yield reason(
                "store.missing", place, artifact=name, found=len(recorded), wanted=len(case.store)
            )
    for number, name in enumerate(recorded):
        if number >= len(case.store) or case.store[number] != name:
            yield reason("store.unexpected", place, artifact=name)
    begun = -1 if cell.begun is None else cell.begun.seq
    first = min((e.seq for events in cell.steps.values() for e in events), default=None)
    for event in cell.stored:
        if event.seq < begun or (first is not None and event.seq > first):
            yield reason("store.out_of_order", place, artifact=event["artifact"])


def _steps(place: Place, case: Case, cell: CellEvents) -> Iterator[Reason]:
    last = -1 if cell.begun is None else cell.begun.seq
    for number, step in enumerate(case.steps):
        events = cell.steps.get(number, ())
        if len(events) != 1:
            code = "step.repeated" if events else "step.missing"
            yield reason(code, place, step=number, count=len(events))
            continue
        event = events[0]
        wanted = "observed" if isinstance(step, Act) else "asked"
        if event.name != wanted:
            yield reason("step.kind", place, step=number, wanted=wanted, found=event.name)
        if event.seq < last:
            yield reason("step.out_of_order", place, step=number)
        last = event.seq
    for number in sorted(set(cell.steps) - set(range(len(case.steps)))):
        yield reason("step.unknown", place, step=number)


def _restarts(
    evidence: Evidence, place: Place, case: Case, cell: CellEvents, begun: Event
) -> Iterator[Reason]:
    """Between stores and asks: one restart, as `after` says, and memory emptied before a disk."""
    early = {number for number, step in enumerate(case.steps) if step.before_restart}
    before, behind = [event.seq for event in cell.stored], list[int]()
    for number, events in cell.steps.items():
        (before if number in early else behind).extend(event.seq for event in events)
    low, high = max([begun.seq, *before]), min(behind, default=len(evidence.history.events))
    end = max([low, *behind])
    restarts = evidence.restarts.get(place.backend, ())
    if place.after != NONE and not any(
        low < event.seq < high and event["what"] == place.after for event in restarts
    ):
        yield reason("restart.missing", place, what=place.after)
    if place.backend in BEHIND and not any(
        low < event.seq < high and event["objects_after"] == 0
        for event in evidence.emptied.get(place.backend, ())
    ):
        yield reason("memory.not_emptied", place)
    matched = False
    for event in restarts:
        if not begun.seq < event.seq < end:
            continue
        if not matched and event["what"] == place.after and low < event.seq < high:
            matched = True
            continue
        yield reason("restart.unexpected", place, what=event["what"])
