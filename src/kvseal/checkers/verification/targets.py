# SPDX-License-Identifier: Apache-2.0
"""The control and each target as a whole: its process, its probes, its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.verification.controls import check_control, control_of
from kvseal.checkers.verification.evidence import Evidence
from kvseal.checkers.verification.probes import ProbeResult, answer_json, judge_probe
from kvseal.checkers.verification.reasons import Reason, reason
from kvseal.checkers.verification.run import OF_A_PROCESS
from kvseal.spec.contracts import CONTROL
from kvseal.verdict import merge


@dataclass(frozen=True)
class TargetResult:
    """What one target, or the control, amounts to; `own` are reasons of no single probe."""

    target: str
    verdict: str
    reused: bool
    own: tuple[Reason, ...]
    reasons: tuple[Reason, ...]
    probes: tuple[dict[str, Any], ...]


def judge_target(evidence: Evidence, target: str, run: Sequence[Reason] = ()) -> TargetResult:
    """Return what `target` shows: the worst of its probes, of which one must have reused.

    `run` are the reasons found in the run as a whole; those about this target are its own.
    """
    about = [entry for entry in run if entry.target == target]
    own = [*check_process(evidence, target), *_of_no_probe(evidence, about)]
    geometry = evidence.plan.geometry
    results: list[ProbeResult] = []
    # A target that never started has one reason, not one for each answer it lacks.
    if geometry is not None and _took_part(evidence, target):
        results = [
            judge_probe(
                evidence,
                target,
                probe,
                geometry,
                [entry for entry in about if entry.probe == probe.id],
            )
            for probe in evidence.plan.probes.values()
        ]
    reasons = [*own, *(entry for result in results for entry in result.reasons)]
    passed = any(result.verdict == "pass" for result in results)
    if not reasons and not passed:
        own.append(reason("target.nothing_reused", target=target))
        reasons = own
    return TargetResult(
        target=target,
        verdict=_word(reasons, "pass"),
        reused=any(result.reused for result in results),
        own=tuple(own),
        reasons=tuple(reasons),
        probes=tuple(result.to_json() for result in results),
    )


def judge_control(evidence: Evidence, run: Sequence[Reason] = ()) -> TargetResult:
    """Return what the control shows: that it answered all, without a cache, and stably.

    Its verdict is control_match, or control_only_pass where no target was asked for;
    `run` as for judge_target.
    """
    about = [entry for entry in run if entry.target == CONTROL]
    own = [*check_process(evidence, CONTROL), *_of_no_probe(evidence, about)]
    reasons, probes = list(own), []
    if _took_part(evidence, CONTROL):
        for probe in evidence.plan.probes.values():
            found = [entry for entry in about if entry.probe == probe.id]
            found += check_control(evidence, probe)
            found += _disqualified(evidence, CONTROL, probe.id)
            reasons += found
            control = control_of(evidence, probe)
            keys = evidence.plan.answers(CONTROL, probe.id)
            complete = all(key in evidence.answers for key in keys)
            probes.append(
                {
                    "probe": probe.id,
                    "tokens": probe.tokens,
                    "verdict": _word(found, "control_match"),
                    "state": "complete" if complete else "incomplete",
                    "reused": False,
                    "answers": [answer_json(evidence, key, 0, control, None) for key in keys],
                }
            )
    best = "control_match" if evidence.request.targets else "control_only_pass"
    return TargetResult(
        CONTROL, _word(reasons, best), False, tuple(own), tuple(reasons), tuple(probes)
    )


def check_process(evidence: Evidence, target: str) -> Iterator[Reason]:
    """Yield what is wrong with the process of a target or of the control."""
    for event in evidence.of("error", target):
        yield reason("target.error", target=target, where=event["where"], message=event["message"])
    yield from _disqualified(evidence, target, None)
    if not evidence.of("target_started", target):
        yield reason("target.not_started", target=target)
        return
    end = evidence.ends.get(target)
    if not evidence.of("target_finished", target):
        yield reason("target.not_finished", target=target)
    elif end is not None and end["status"] != 0:
        status = end["status"]
        yield reason("target.status", target=target, status="unknown" if status is None else status)


def _disqualified(evidence: Evidence, target: str, probe: str | None) -> Iterator[Reason]:
    for event in evidence.of("disqualified", target):
        if event["probe"] == probe:
            yield reason("target.disqualified", target=target, probe=probe, reason=event["reason"])


def _of_no_probe(evidence: Evidence, about: list[Reason]) -> list[Reason]:
    """Return the reasons that no probe of the plan takes up."""
    return [entry for entry in about if entry.probe not in evidence.plan.probes]


def _took_part(evidence: Evidence, target: str) -> bool:
    """True when the history holds anything that a running target leaves."""
    return any(evidence.of(name, target) for name in OF_A_PROCESS)


def _word(reasons: list[Reason], best: str) -> str:
    return merge(entry.verdict for entry in reasons).value.lower() if reasons else best
