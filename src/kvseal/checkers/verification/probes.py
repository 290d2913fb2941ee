# SPDX-License-Identifier: Apache-2.0
"""One probe of one target: every answer against control and cold answer, every hit counted.

A probe passes when all its answers are there, each is the control's token for
token, and each reused exactly what it had to. Where the geometry leaves nothing
to reuse, equal answers are a `control_match`, which is no passed reuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvseal.checkers.prompt_checks import first_difference
from kvseal.checkers.verification.answers import check_answers, not_comparable
from kvseal.checkers.verification.controls import Control, control_of
from kvseal.checkers.verification.differences import (
    LOGPROB_BOUNDS,
    Difference,
    difference,
    largest_logprob_difference,
    moved,
)
from kvseal.checkers.verification.evidence import Evidence
from kvseal.checkers.verification.hits import check_hits, expected_hits
from kvseal.checkers.verification.plan import AnswerKey
from kvseal.checkers.verification.reasons import DIFFERS, Reason, answer_name, reason
from kvseal.records.history import Event
from kvseal.verdict import merge
from kvseal.workload.probes import Geometry, Probe

NOT_HELD = ("no_control", "other_prompt", "cut_short")
"""Explanations of a difference that another reason already speaks of."""


@dataclass(frozen=True)
class ProbeResult:
    """What one probe of one target amounts to.

    `verdict` is pass, fail, inconclusive or control_match; `state` complete,
    incomplete or no_reuse_possible. `reused` says that some answer had exactly
    the hits, more than none, that it had to have.
    """

    probe: Probe
    verdict: str
    state: str
    reused: bool
    reasons: tuple[Reason, ...]
    answers: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as it stands in the report."""
        return {
            "probe": self.probe.id,
            "tokens": self.probe.tokens,
            "verdict": self.verdict,
            "state": self.state,
            "reused": self.reused,
            "answers": list(self.answers),
        }


def judge_probe(
    evidence: Evidence,
    target: str,
    probe: Probe,
    geometry: Geometry,
    known: Sequence[Reason] = (),
) -> ProbeResult:
    """Return what the answers of `target` to `probe` show; `known` is already held against it."""
    control = control_of(evidence, probe)
    keys = evidence.plan.answers(target, probe.id)
    reasons = [*known, *check_answers(evidence, target, probe)]
    if control.doubt is not None:
        reasons.append(
            reason("probe.no_control", target=target, probe=probe.id, problem=control.doubt)
        )
    for event in evidence.of("disqualified", target):
        if event["probe"] == probe.id:
            reasons.append(
                reason("target.disqualified", target=target, probe=probe.id, reason=event["reason"])
            )
    differences: dict[AnswerKey, Difference] = {}
    for key in keys:
        if key in evidence.answers:
            reasons += check_hits(target, probe, evidence.answers[key], geometry)
            found = _difference(evidence, key, control)
            if found is not None:
                differences[key] = found
                reasons += _judged(evidence, key, control, found)
            else:
                reasons += _hidden(evidence, key, control)
    expected = {key: expected_hits(target, probe, key.kind, geometry) for key in keys}
    reused = any(
        expected[key] and evidence.answers[key]["cached_tokens"] == expected[key]
        for key in keys
        if key in evidence.answers and key.kind == "reuse"
    )
    reusable = any(expected[key] for key in keys if key.kind == "reuse")
    complete = all(key in evidence.answers for key in keys)
    if reasons:
        verdict = merge(entry.verdict for entry in reasons).value.lower()
    else:
        verdict = "pass" if reusable else "control_match"
    return ProbeResult(
        probe=probe,
        verdict=verdict,
        state="incomplete" if not complete else "complete" if reusable else "no_reuse_possible",
        reused=reused,
        reasons=tuple(reasons),
        answers=tuple(
            answer_json(evidence, key, expected[key], control, differences.get(key)) for key in keys
        ),
    )


def _difference(evidence: Evidence, key: AnswerKey, control: Control) -> Difference | None:
    if control.answer is None:
        return None
    answer = evidence.answers[key]
    witnesses: list[Event] = []
    if key.target != "native":
        witnesses = [
            evidence.answers[other]
            for other in evidence.plan.answers("native", key.probe)
            if other in evidence.answers
        ]
    found = difference(
        answer,
        control.answer,
        cold=evidence.answers.get(AnswerKey(key.target, key.probe, "cold", 0)),
        witnesses=witnesses,
        dtype=evidence.request.dtype,
    )
    if found is not None and control.problem is not None:
        return replace(found, explanation="no_control")
    if found is not None:
        why = not_comparable(evidence, evidence.plan.probes[key.probe], key, control.answer)
        return found if why is None else replace(found, explanation=why)
    return None


def _judged(
    evidence: Evidence, key: AnswerKey, control: Control, found: Difference
) -> Iterator[Reason]:
    """Yield the reason for one difference, unless another reason already says it all."""
    if found.explanation in NOT_HELD or control.answer is None:
        return
    dtype = evidence.request.dtype
    distance = moved(evidence.answers[key], control.answer, dtype)
    yield reason(
        DIFFERS if found.explanation is None else f"difference.{found.explanation}",
        target=key.target,
        probe=key.probe,
        answer=answer_name(key.kind, key.repetition),
        index=found.index,
        token="no token" if found.token is None else found.token,
        control="no token" if found.control_token is None else found.control_token,
        margin="an unknown distance" if found.margin is None else f"{found.margin:.3g}",
        moved="" if distance is None else f", after log-probabilities moved by {distance:.3g}",
        dtype=dtype,
    )


def _hidden(evidence: Evidence, key: AnswerKey, control: Control) -> Iterator[Reason]:
    """Yield a reason where equal tokens hide that they were computed from something else."""
    dtype, probe = evidence.request.dtype, evidence.plan.probes[key.probe]
    if control.answer is None or control.problem is not None:
        return
    if not_comparable(evidence, probe, key, control.answer) == "other_prompt":
        return
    distance = moved(evidence.answers[key], control.answer, dtype)
    if distance is not None:
        yield reason(
            "difference.hidden",
            target=key.target,
            probe=key.probe,
            answer=answer_name(key.kind, key.repetition),
            moved=f"{distance:.3g}",
            bound=LOGPROB_BOUNDS[dtype],
            dtype=dtype,
        )


def answer_json(
    evidence: Evidence,
    key: AnswerKey,
    expected: int,
    control: Control,
    found: Difference | None,
) -> dict[str, Any]:
    """Return one planned answer as it stands in the report; what was not seen is null."""
    answer, missing = evidence.answers.get(key), evidence.missing.get(key)
    cold = evidence.answers.get(AnswerKey(key.target, key.probe, "cold", 0))
    compared = answer is not None and control.answer is not None
    with_cold = key.kind == "reuse" and answer is not None and cold is not None
    from_cold = (
        first_difference(cold["token_ids"], answer["token_ids"])
        if with_cold and cold is not None and answer is not None
        else None
    )
    return {
        "kind": key.kind,
        "repetition": key.repetition,
        "state": "answered" if answer else "missing" if missing else "absent",
        "missing_reason": missing["reason"] if missing else None,
        "prompt_token_ids_sha256": answer["prompt_token_ids_sha256"] if answer else None,
        "token_ids": list(answer["token_ids"]) if answer else None,
        "finish_reason": answer["finish_reason"] if answer else None,
        "cached_tokens": answer["cached_tokens"] if answer else None,
        "expected_cached_tokens": expected,
        "server_hit_tokens": answer["server_hit_tokens"] if answer else None,
        "equal_control": found is None if compared else None,
        "first_difference_control": found.index if found else None,
        "equal_cold": from_cold is None if with_cold else None,
        "first_difference_cold": from_cold,
        "difference": found.to_json() if found else None,
        "largest_logprob_difference": (
            largest_logprob_difference(answer, control.answer)
            if answer is not None and control.answer is not None
            else None
        ),
    }
