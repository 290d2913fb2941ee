# SPDX-License-Identifier: Apache-2.0
"""A history sorted for the checks: each event by what it is about.

Where one thing is recorded twice, both records are left out and the repetition
is a reason of its own, so that no check can pick the one it likes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kvseal.checkers.reasons import Reason, reason
from kvseal.records.history import Event, History


@dataclass(frozen=True)
class Evidence:
    """Events of a run by subject; `repeated` are the reasons for those left out."""

    history: History
    single: dict[str, Event]
    clears: dict[str, Event]
    prompts: dict[int, Event]
    transforms: dict[int, Event]
    answers: dict[tuple[str, int], Event]
    references: dict[int, Event]
    repeated: tuple[Reason, ...]

    def answered(self, arm: str) -> list[Event]:
        """Return every answer of `arm` in order, repeated ones too."""
        return [event for event in self.history.named("answer") if event["arm"] == arm]


SINGLE = ("run_started", "environment", "engines_started", "run_finished")


def sort_evidence(history: History) -> Evidence:
    """Return `history` by subject."""
    repeated: list[Reason] = []

    def by(name: str, *fields: str) -> dict[tuple[object, ...], Event]:
        found: dict[tuple[object, ...], list[Event]] = defaultdict(list)
        for event in history.named(name):
            found[tuple(event[field] for field in fields)].append(event)
        for events in found.values():
            if len(events) > 1:
                about = events[0].fields
                repeated.append(
                    reason(
                        "run.event_repeated",
                        index=about.get("index"),
                        arm=about.get("arm", about.get("before_arm")),
                        event=name,
                        count=len(events),
                    )
                )
        return {key: events[0] for key, events in found.items() if len(events) == 1}

    single = {name: event for name in SINGLE for event in by(name).values()}
    return Evidence(
        history=history,
        single=single,
        clears={event["before_arm"]: event for event in by("cache_cleared", "before_arm").values()},
        prompts=_by_index(by("prompt", "index").values()),
        transforms=_by_index(by("transform", "index").values()),
        answers={
            (event["arm"], event["index"]): event for event in by("answer", "arm", "index").values()
        },
        references=_by_index(by("reference", "index").values()),
        repeated=tuple(repeated),
    )


def _by_index(events: Iterable[Event]) -> dict[int, Event]:
    return {event["index"]: event for event in events}
