# SPDX-License-Identifier: Apache-2.0
"""A matrix run's history sorted for the checks: each event by the cell it is about.

What is recorded twice counts for nothing, and what nobody planned is named:
both are reasons of their own, so that no check picks the record it likes and
none passes one over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.plan import STOCK, NotRun, Spec, left_out, planned, without_backend
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.records.history import Event, History
from kvseal.workload.matrix import ARTIFACTS, CASES, Case

STEPS = ("asked", "observed")
OF_A_CELL = ("cell", "stored", *STEPS)


@dataclass(frozen=True)
class CellEvents:
    """What is recorded of one cell, in order; `steps` by their number."""

    cells: tuple[Event, ...] = ()
    stored: tuple[Event, ...] = ()
    steps: Mapping[int, tuple[Event, ...]] = field(default_factory=dict)

    @property
    def begun(self) -> Event | None:
        """The event that begins the cell, if there is one and only one."""
        return self.cells[0] if len(self.cells) == 1 else None

    def step(self, number: int) -> Event | None:
        """The event of step `number`, if there is one and only one."""
        found = self.steps.get(number, ())
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run. `places` are the cells to judge, `left_out` those not run."""

    spec: Spec
    history: History
    cases: Mapping[str, Case]
    places: tuple[Place, ...]
    left_out: Mapping[Place, NotRun]
    cells: Mapping[Place, CellEvents]
    artifacts: Mapping[str, Event]
    restarts: Mapping[str, tuple[Event, ...]]
    emptied: Mapping[str, tuple[Event, ...]]
    salts: Mapping[str, tuple[Place, ...]]
    sealed: Mapping[str, tuple[Place, ...]]
    reasons: tuple[Reason, ...] = ()

    @property
    def stock(self) -> bool:
        """True when nothing was stored or asked under a variant, on purpose."""
        return self.spec.matrix.identity == STOCK

    def of(self, place: Place) -> CellEvents:
        """Return what is recorded of a cell."""
        return self.cells.get(place, CellEvents())


def sort_evidence(spec: Spec, history: History) -> Evidence:
    """Return `history` by subject. Never raises: what can't be read is a reason."""
    found: list[Reason] = []
    cases = {case.name: case for case in CASES}
    excused, dropped = _excused(spec, history, cases, found)
    cells = {place: _sorted(events) for place, events in _by_place(history).items()}
    wanted = planned(spec)
    for place, events in _by_place(history).items():
        if place not in wanted:
            found.append(reason("cell.unknown", place, count=len(events)))
    artifacts: dict[str, Event] = {}
    for name, events in _grouped(history, "artifact", "name").items():
        if name not in ARTIFACTS and not spec.matrix.mixed_requests:
            found.append(reason("artifact.unknown", name=name))
        elif len(events) > 1:
            found.append(reason("artifact.repeated", name=name, count=len(events)))
        else:
            artifacts[name] = events[0]
    return Evidence(
        spec=spec,
        history=history,
        cases=cases,
        places=tuple(place for place in wanted if place not in excused),
        left_out=excused,
        cells=cells,
        artifacts=artifacts,
        restarts={
            name: tuple(events)
            for name, events in _grouped(history, "restarted", "backend").items()
        },
        emptied={
            name: tuple(events) for name, events in _grouped(history, "emptied", "backend").items()
        },
        salts=_places_by(history, "cell", "cache_salt"),
        sealed=_places_by(history, "stored", "variant"),
        reasons=(*found, *dropped),
    )


def _excused(
    spec: Spec, history: History, cases: Mapping[str, Case], found: list[Reason]
) -> tuple[dict[Place, NotRun], list[Reason]]:
    """Return the cells that may stay unrun, and a reason for each that was left out and may not."""
    events: dict[Place, Event] = {}
    counts: Counter[Place] = Counter()
    for event in history.named("not_applicable"):
        place = Place.of(event)
        counts[place] += 1
        events[place] = event
        if place.case not in cases:
            found.append(reason("cell.unknown", place, count=1))
    for place, count in counts.items():
        if count > 1:
            found.append(reason("cell.repeated", place, count=count))
    ran = _by_place(history)
    found += [reason("cell.both", place) for place in events if place in ran]
    # What was run is judged, whatever the driver says of it besides.
    excused = {
        place: block
        for place, block in (left_out(spec, events, cases) | without_backend(spec, history)).items()
        if place not in ran
    }
    return excused, [
        reason("cell.not_applicable", place, reason=events[place]["reason"])
        for place in planned(spec)
        if place in events and place not in excused and place not in ran
    ]


def _by_place(history: History) -> dict[Place, list[Event]]:
    places: dict[Place, list[Event]] = defaultdict(list)
    for event in history.events:
        if event.name in OF_A_CELL:
            places[Place.of(event)].append(event)
    return places


def _sorted(events: list[Event]) -> CellEvents:
    steps: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.name in STEPS:
            steps[event["step"]].append(event)
    return CellEvents(
        cells=tuple(event for event in events if event.name == "cell"),
        stored=tuple(event for event in events if event.name == "stored"),
        steps={number: tuple(several) for number, several in steps.items()},
    )


def _grouped(history: History, name: str, by: str) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in history.named(name):
        groups[event[by]].append(event)
    return groups


def _places_by(history: History, name: str, by: str) -> dict[str, tuple[Place, ...]]:
    """Return, for each value of a field, the cells whose events of this name have it."""
    found: dict[str, dict[Place, None]] = defaultdict(dict)
    for event in history.named(name):
        found[event[by]][Place.of(event)] = None
    return {value: tuple(places) for value, places in found.items()}


def single(history: History, names: tuple[str, ...]) -> Iterator[Reason]:
    """Yield a reason for each event of `names` that is recorded more than once."""
    for name in names:
        count = len(history.named(name))
        if count > 1:
            yield reason("run.event_repeated", event=name, count=count)
