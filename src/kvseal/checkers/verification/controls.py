# SPDX-License-Identifier: Apache-2.0
"""The control: no cache, the same prompt asked again, the same answer each time.

All probes of one prompt send the same tokens, so their control answers have to
agree. Where they do not, the engine drifts by itself, and a target's difference
there proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvseal.checkers.prompt_checks import first_difference
from kvseal.checkers.verification.answers import check_answers, is_sound
from kvseal.checkers.verification.evidence import Evidence
from kvseal.checkers.verification.plan import AnswerKey
from kvseal.checkers.verification.reasons import Reason, answer_name, reason
from kvseal.records.history import Event
from kvseal.spec.contracts import CONTROL
from kvseal.workload.probes import Probe


@dataclass(frozen=True)
class Control:
    """The control's answer to one probe.

    `answer` is None where there is none. `problem` says, in words, why nothing
    can be held against a target by it; `doubt` why nothing can be passed by it.
    """

    answer: Event | None
    problem: str | None
    doubt: str | None


def check_control(evidence: Evidence, probe: Probe) -> Iterator[Reason]:
    """Yield what is wrong with the control's answers to `probe` itself."""
    yield from check_answers(evidence, CONTROL, probe)
    for key in evidence.plan.answers(CONTROL, probe.id):
        if key not in evidence.answers:
            continue
        about = {"target": CONTROL, "probe": probe.id}
        name, seen = answer_name(key.kind, key.repetition), evidence.answers[key]["cached_tokens"]
        if seen is None:
            yield reason("hits.unknown", **about, answer=name)
        elif seen:
            yield reason("control.cached", **about, answer=name, seen=seen)
    index = drift(evidence, probe)
    if index is not None:
        yield reason("control.drifts", target=CONTROL, probe=probe.id, index=index)


def drift(evidence: Evidence, probe: Probe) -> int | None:
    """Return the first token in which the control's answers to this prompt part, if any."""
    answers = [
        evidence.answers[key]["token_ids"]
        for other in evidence.plan.of_prompt(probe.prompt)
        for key in evidence.plan.answers(CONTROL, other.id)
        if is_sound(evidence, other, key)
    ]
    places = [first_difference(answers[0], answer) for answer in answers[1:]]
    return min((place for place in places if place is not None), default=None)


def control_of(evidence: Evidence, probe: Probe) -> Control:
    """Return what targets are compared with on `probe`."""
    key = AnswerKey(CONTROL, probe.id, CONTROL, 0)
    answer = evidence.answers.get(key)
    disqualified = [
        event["reason"]
        for event in evidence.of("disqualified", CONTROL)
        if event["probe"] in (None, probe.id)
    ]
    problem = None
    if answer is None:
        problem = "it did not answer"
    elif disqualified:
        problem = disqualified[0]
    elif not is_sound(evidence, probe, key):
        problem = "its answer is not whole, or not to these tokens"
    elif answer["cached_tokens"]:
        problem = "its cache was on"
    elif drift(evidence, probe) is not None:
        problem = "its answers to this prompt differ among themselves"
    doubt = None
    if any(
        True
        for other in evidence.plan.of_prompt(probe.prompt)
        for _ in check_control(evidence, other)
    ):
        doubt = "something is wrong with the control's answers to this prompt"
    return Control(answer, problem, problem or doubt)
