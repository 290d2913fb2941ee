# SPDX-License-Identifier: Apache-2.0
"""Is an answer whole, to the right prompt, and in its place? The same for control and targets."""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.canonical import token_ids_sha256
from kvseal.checkers.verification.evidence import Evidence
from kvseal.checkers.verification.plan import AnswerKey
from kvseal.checkers.verification.reasons import Reason, answer_name, reason
from kvseal.records.history import Event
from kvseal.workload.probes import Probe

ENDS = ("length", "stop")
"""Reasons for which a generation ends by itself. Source: vLLM 0.28.0's finish reasons; the others,
abort, error and repetition, end one from outside."""


def check_answers(evidence: Evidence, target: str, probe: Probe) -> Iterator[Reason]:
    """Yield what is wrong with the answers of `target` to `probe`, apart from their tokens."""
    keys = evidence.plan.answers(target, probe.id)
    about = {"target": target, "probe": probe.id}
    found = [key for key in keys if key in evidence.answers]
    for key in keys:
        if key in evidence.missing:
            yield reason(
                "answer.missing",
                **about,
                answer=answer_name(key.kind, key.repetition),
                reason=evidence.missing[key]["reason"],
            )
    if len(found) < len(keys):
        yield reason("probe.incomplete", **about, found=len(found), planned=len(keys))
    elif (target, probe.id) not in evidence.completed:
        yield reason("probe.not_completed", **about)
    for key in found:
        yield from _answer(evidence, probe, key)
    yield from _order(evidence, found)


def is_sound(evidence: Evidence, probe: Probe, key: AnswerKey) -> bool:
    """True when the answer is there and nothing about its form speaks against it."""
    return key in evidence.answers and not list(_answer(evidence, probe, key))


def not_comparable(evidence: Evidence, probe: Probe, key: AnswerKey, control: Event) -> str | None:
    """Return why a difference of this answer from `control` says nothing, None when it does.

    other_prompt: it is no answer to the probe; cut_short: it is a beginning of
    the control's and did not end by itself.
    """
    codes = {found.code for found in _answer(evidence, probe, key)}
    if "answer.prompt_differs" in codes:
        return "other_prompt"
    tokens = evidence.answers[key]["token_ids"]
    if codes and list(tokens) == list(control["token_ids"][: len(tokens)]):
        return "cut_short"
    return None


def _answer(evidence: Evidence, probe: Probe, key: AnswerKey) -> Iterator[Reason]:
    answer, limit = evidence.answers[key], evidence.request.max_tokens
    about = {
        "target": key.target,
        "probe": probe.id,
        "answer": answer_name(key.kind, key.repetition),
    }
    tokens, finish = len(answer["token_ids"]), answer["finish_reason"]
    if answer["prompt_token_ids_sha256"] != token_ids_sha256(list(probe.token_ids)):
        yield reason("answer.prompt_differs", **about)
    if not tokens:
        yield reason("answer.empty", **about)
    elif finish not in ENDS:
        yield reason("answer.unfinished", **about, finish="unknown" if finish is None else finish)
    elif limit is not None and (tokens > limit or (finish == "length" and tokens < limit)):
        yield reason("answer.length", **about, tokens=tokens, finish=finish, limit=limit)


def _order(evidence: Evidence, keys: list[AnswerKey]) -> Iterator[Reason]:
    """Each answer comes after the one before it, and within the run of its target."""
    latest = -1
    for key in keys:
        seq = evidence.answers[key].seq
        start, end = evidence.starts.get(key.target), evidence.ends.get(key.target)
        outside = (start is not None and seq < start.seq) or (end is not None and seq > end.seq)
        if seq < latest or outside:
            yield reason(
                "answer.out_of_order",
                target=key.target,
                probe=key.probe,
                answer=answer_name(key.kind, key.repetition),
            )
        latest = max(latest, seq)
