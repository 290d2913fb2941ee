# SPDX-License-Identifier: Apache-2.0
"""Did the verification as a whole take place? Start to end, control first, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvseal.checkers.verification.evidence import Evidence
from kvseal.checkers.verification.reasons import Reason, reason
from kvseal.spec.contracts import CONTROL

OF_A_PROCESS = (
    "target_started", "answer", "answer_missing", "probe_completed", "target_finished",
)  # fmt: skip


def check_run(evidence: Evidence) -> Iterator[Reason]:
    """Yield what is wrong with the run as a whole."""
    history = evidence.history
    yield from evidence.reasons
    if not history.named("verification_started"):
        yield reason("run.not_started")
    if not history.named("environment"):
        yield reason("run.environment_missing")
    if not history.named("manifest"):
        yield reason("run.manifest_missing")
    for event in history.named("error"):
        if event["target"] is None:
            yield reason("run.error", where=event["where"], message=event["message"])
    for event in history.named("interrupted"):
        yield reason("run.interrupted", signal=event["signal"])
    if history.truncated:
        yield reason("run.truncated")
    if not history.events or history.events[-1].name != "verification_finished":
        yield reason("run.not_finished")
    yield from _order(evidence)
    yield from _alone(evidence)
    for name in unaccepted(evidence):
        yield reason("contract.not_accepted", what=name)


def deviations(evidence: Evidence) -> list[str]:
    """Return in words how the installation departs from the contract."""
    return [
        f"{entry.get('what')}: expected {_text(entry.get('expected'))}, "
        f"found {_text(entry.get('found'))}"
        for entry in evidence.request.deviations
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def unaccepted(evidence: Evidence) -> list[str]:
    """Return the deviations that were not accepted by name."""
    return [
        text
        for entry, text in zip(evidence.request.deviations, deviations(evidence), strict=True)
        if entry.get("what") not in evidence.request.accepted
    ]


def _order(evidence: Evidence) -> Iterator[Reason]:
    """The request comes first, and what will be asked is fixed before anything is."""
    history = evidence.history
    if evidence.started is not None and evidence.started.seq != 0:
        yield reason("run.out_of_order", event="verification_started")
    begun = [event.seq for event in history.events if event.name in OF_A_PROCESS]
    if evidence.manifest is not None and begun and evidence.manifest.seq > begun[0]:
        yield reason("run.out_of_order", event="manifest")


def _alone(evidence: Evidence) -> Iterator[Reason]:
    """Yield a reason for each process that ran beside another, or before the control's."""
    spans: dict[str, tuple[int, int]] = {}
    for event in evidence.history.events:
        if event.name in OF_A_PROCESS:
            target = event["target"]
            spans[target] = (spans.get(target, (event.seq,))[0], event.seq)
    last = -1
    for place, (target, (first, end)) in enumerate(spans.items()):
        if first < last or (target == CONTROL and place):
            yield reason("target.overlaps", target=target)
        last = max(last, end)
