# SPDX-License-Identifier: Apache-2.0
"""Judge the mixed requests: two engines on one server at the same time, one without variants.

A request that is ordinary must be answered as the control answers it, from the
cache or not; one that names a variant must be answered from that artifact or,
where nothing was loaded, as the control does. Only vLLM counts here: what the
server loaded is no request's own while two engines ask it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.reasons import Outcome, Reason, reason, worst
from kvseal.checkers.matrix.truth import CONTROL, Tokens, Truth
from kvseal.records.history import Event
from kvseal.records.matrix import MIXED_ENGINES
from kvseal.workload.matrix import ARTIFACTS


@dataclass(frozen=True)
class MixedResult:
    """What the mixed requests came to."""

    reasons: tuple[Reason, ...]
    figures: dict[str, int]


def judge_mixed(evidence: Evidence, truth: Truth) -> MixedResult:
    """Return the judgement of every mixed request; none may be missing, none sent twice."""
    events, planned = evidence.history.named("mixed"), evidence.spec.matrix.mixed_requests
    reasons = [*_plan(events, planned)]
    if planned:
        reasons += _sides(truth, events)
    outcomes: Counter[Outcome] = Counter()
    for event in events:
        found = [*_names(evidence, event), *_judge(evidence, truth, event)]
        outcomes[worst(found)] += 1
        reasons += found
    required = Counter(event["required"] for event in events)
    return MixedResult(
        tuple(reasons),
        {
            "planned": planned,
            "requests": len(events),
            "hits_required": required["hit"],
            "misses_required": required["miss"],
            "either_allowed": required["any"],
            "hits_seen": sum(bool(event["hit_tokens_vllm"]) for event in events),
            "passed": outcomes[Outcome.PASSED],
            "unsafe_hits": outcomes[Outcome.UNSAFE_HIT],
            "wrong_answers": outcomes[Outcome.WRONG_ANSWER],
            "lost_hits": outcomes[Outcome.LOST_HIT],
            "inconclusive": outcomes[Outcome.INCONCLUSIVE],
        },
    )


def _plan(events: list[Event], planned: int) -> Iterator[Reason]:
    counts = Counter(event["index"] for event in events)
    there = sum(index in counts for index in range(planned))
    if there < planned:
        yield reason("mixed.missing", found=there, wanted=planned)
    for index, count in sorted(counts.items()):
        if count > 1 or index >= planned:
            yield reason("mixed.unexpected", index=index)


def _sides(truth: Truth, events: list[Event]) -> Iterator[Reason]:
    """An unsafe hit could have shown itself, and so could a lost one."""
    engines = {event["engine"] for event in events}
    for engine in MIXED_ENGINES:
        if engine not in engines:
            yield reason("mixed.one_sided", problem=f"none went to the engine {engine}")
    if not any(event["required"] == "hit" for event in events):
        yield reason("mixed.one_sided", problem="no hit was required")
    if not any(_is_literal(truth, event) for event in events):
        yield reason(
            "mixed.one_sided", problem="no ordinary one sent the literal tokens of an artifact"
        )


def _is_literal(truth: Truth, event: Event) -> bool:
    """True for an ordinary request that begins with the tokens of its transformed artifact.

    Only for such a prompt there is a witness, which decoded from that artifact.
    """
    key = (event["artifact"], event["prompt_sha256"])
    return not event["variant"] and not _must_hit(event) and key in truth.witnesses


def _is_local(name: str) -> bool:
    return name in ARTIFACTS and ARTIFACTS[name].local


def _must_hit(event: Event) -> bool:
    return bool(event["required"] == "hit")


def _names(evidence: Evidence, event: Event) -> Iterator[Reason]:
    """A request that must hit names its artifact; the plain engine and stock name nothing."""
    name, found = event["artifact"], event["variant"]
    made = evidence.artifacts.get(name)
    wanted: str | None = None
    if evidence.stock or event["engine"] == "plain":
        wanted = ""
    elif _must_hit(event) and made is not None and not _is_local(name):
        wanted = made["variant"]
    if wanted is not None and found != wanted:
        about = f"{name}, which is {wanted!r}" if wanted else "a request that names none"
        yield reason("mixed.identity", index=event["index"], found=found, wanted=about)


def _may_not_hit(evidence: Evidence, event: Event) -> bool:
    """True where a miss is required, or the variant named is not that of the artifact.

    The second is not left to what the driver says of the request.
    """
    name, made = event["artifact"], evidence.artifacts.get(event["artifact"])
    other = made is not None and not _is_local(name) and event["variant"] != made["variant"]
    return bool(event["required"] == "miss" or (event["variant"] and other))


def _judge(evidence: Evidence, truth: Truth, event: Event) -> Iterator[Reason]:
    index, kind, name = event["index"], event["kind"], event["artifact"]
    count, whole, prompt = (
        event["hit_tokens_vllm"],
        event["artifact_tokens"],
        event["prompt_sha256"],
    )
    counted = f"vLLM counted {'an unknown number of' if count is None else count} loaded tokens"

    def about(code: str, **values: Any) -> Reason:
        return reason(code, index=index, kind=kind, counted=counted, wanted=whole, **values)

    if count is None:
        yield about("mixed.hit_unknown")
    elif count and _may_not_hit(evidence, event):
        yield about("mixed.unsafe_hit")
        return
    elif _must_hit(event) and count < whole:
        yield about("mixed.lost_hit")
    elif event["required"] == "hit" and count > whole:
        yield about("mixed.hit_differs")
    recomputed, loaded = truth.miss(prompt), truth.hit(name, prompt)
    literal = bool(count) and _is_literal(truth, event)
    from_artifact = bool(count) and (bool(event["variant"]) or _must_hit(event))
    whose, true = (name, loaded) if from_artifact else (CONTROL, recomputed)
    seen: Tokens = tuple(event["output_token_ids"])
    if true is None:
        yield about("mixed.no_truth", truth=f"answer of {whose}")
    elif seen != true:
        taken = literal and seen == loaded
        yield about("mixed.unsafe_hit" if taken else "mixed.wrong_answer", truth=whose)
    elif literal and recomputed == loaded:
        # An ordinary request may be served its own KV; here nobody could tell whose it was.
        yield about("mixed.indistinct", artifact=name)
