# SPDX-License-Identifier: Apache-2.0
"""Judge one step of a cell: a request by its counts and its answer, an act by what was seen.

Counts come first. Where nothing may be loaded, a single loaded token is an
unsafe hit, whatever was answered: the tokens may agree by luck. Where a hit is
required, the answer has to be the artifact's own, or the right number of wrong
chunks was loaded. An answer that a recomputation would give too is noted as
weak; it decides nothing where the counts are there, unless another artifact
stands under the same tokens in the same cell: then the answer alone tells them
apart, and one that can't is no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.hits import Counts, Hits, read_hits
from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.checkers.matrix.truth import CONTROL, Tokens, Truth
from kvseal.checkers.prompt_checks import first_difference
from kvseal.records.history import Event
from kvseal.workload.matrix import Act, Ask, Required
from kvseal.workload.matrix.case import PROCESS

REFUSED_VALUE = "refused"
"""What an act came to whose value begins with this word."""


@dataclass(frozen=True)
class Step:
    """A request that is judged: what it is, what it must come to, what is known."""

    evidence: Evidence
    truth: Truth
    place: Place
    number: int
    ask: Ask
    event: Event
    required: Required

    @property
    def counts(self) -> Counts:
        """What was counted for it."""
        event = self.event
        return Counts(self.place.backend, event["hit_tokens_server"], event["hit_tokens_vllm"])

    @property
    def whole(self) -> int:
        """Tokens that a full hit loads, as the driver says."""
        return int(self.event["artifact_tokens"])

    @property
    def in_process(self) -> bool:
        """True where there is no engine, and KV itself is what comes back."""
        return self.place.backend == PROCESS

    def reason(self, code: str, **values: object) -> Reason:
        """Return a reason about this step."""
        return reason(
            code, self.place, step=self.number, counted=self.counts, wanted=self.whole, **values
        )


def judge_ask(step: Step) -> Iterator[Reason]:
    """Yield what is wrong with what a request came to."""
    refusal = step.event["refusal"]
    if step.required is not Required.HIT and _loaded(step):
        yield step.reason("hit.unsafe")
    if step.required is Required.REFUSED:
        if refusal is None:
            yield step.reason("refusal.missing")
        return
    if refusal is not None:
        yield step.reason("refusal.unexpected", refusal=refusal)
        return
    yield from (_hit if step.required is Required.HIT else _miss)(step)


def _loaded(step: Step) -> bool:
    """True when anything came from the cache: a counted token, or KV itself."""
    return step.counts.anything or step.event["payload_sha256"] is not None


def _miss(step: Step) -> Iterator[Reason]:
    if _loaded(step):
        return  # said already, and worse than any answer
    if step.counts.unknown:
        yield step.reason("hit.unknown")
    if not step.in_process:
        yield from _compare(step, CONTROL, step.truth.miss(step.event["prompt_sha256"]))


def _hit(step: Step) -> Iterator[Reason]:
    hits = read_hits(step.counts, step.whole)
    if hits is Hits.UNKNOWN:
        yield step.reason("hit.unknown")
    elif hits is Hits.DIFFERS:
        yield step.reason("hit.differs")
    elif hits is not Hits.WHOLE:
        yield step.reason("hit.lost")
    if step.in_process:
        yield from _payload(step, hits)
        return
    prompt = step.event["prompt_sha256"]
    recomputed = step.truth.miss(prompt)
    if hits is Hits.NONE:
        yield from _compare(step, CONTROL, recomputed)
    elif hits is Hits.WHOLE or _answer(step) != recomputed:
        # With counts that are not understood, a recomputed answer is none to complain of.
        own = step.truth.hit(step.ask.prompt, prompt)
        yield from _compare(step, step.ask.prompt, own)
        if hits is Hits.WHOLE:
            yield from _indistinct(step, lambda name: step.truth.hit(name, prompt), own)


def _payload(step: Step, hits: Hits) -> Iterator[Reason]:
    """The KV that came back is the artifact's, byte for byte."""
    if hits is Hits.NONE and step.event["payload_sha256"] is None:
        return

    def payload(name: str) -> str | None:
        artifact = step.evidence.artifacts.get(name)
        return None if artifact is None else str(artifact["payload_sha256"])

    seen, own = step.event["payload_sha256"], payload(step.ask.prompt)
    if seen is None:
        yield step.reason("answer.missing")
    elif own is None:
        yield step.reason("answer.no_truth", truth=f"payload of {step.ask.prompt}")
    elif seen != own:
        yield step.reason("answer.wrong", truth=step.ask.prompt)
    if hits is Hits.WHOLE:
        yield from _indistinct(step, payload, own)


def _answer(step: Step) -> Tokens | None:
    given = step.event["output_token_ids"]
    return tuple(given) if given else None


def _compare(step: Step, whose: str, true: Tokens | None) -> Iterator[Reason]:
    seen = _answer(step)
    if seen is None:
        yield step.reason("answer.missing")
    elif true is None:
        yield step.reason("answer.no_truth", truth=f"answer of {whose}")
    elif seen != true:
        yield step.reason("answer.wrong", truth=whose)


def _indistinct(step: Step, truth: Callable[[str], Any], own: Any) -> Iterator[Reason]:
    """Yield a reason for each other artifact in this cell that could have been the one loaded."""
    for rival in _rivals(step):
        theirs = truth(rival)
        if own is not None and (theirs is None or theirs == own):
            yield step.reason("answer.indistinct", rival=rival)


def _rivals(step: Step) -> list[str]:
    """Return the other artifacts that this cell stored under the same tokens."""
    artifacts, own = step.evidence.artifacts, step.evidence.artifacts.get(step.ask.prompt)
    stored = [e["artifact"] for e in step.evidence.of(step.place).stored if e["refusal"] is None]
    return [
        name
        for name in dict.fromkeys(stored)
        if name != step.ask.prompt
        and own is not None
        and name in artifacts
        and artifacts[name]["token_ids_sha256"] == own["token_ids_sha256"]
    ]


def judge_act(place: Place, number: int, act: Act, event: Event) -> Iterator[Reason]:
    """Yield what is wrong with what an act showed."""
    value, about = event["value"], {"step": number, "what": act.kind}
    if event["what"] != act.kind:
        yield reason("step.kind", place, step=number, wanted=act.kind, found=event["what"])
    refused = value.split(":")[0] == REFUSED_VALUE
    if act.required is Required.REFUSED:
        if not refused:
            yield reason("refusal.missing", place, **about)
    elif value != act.expected:
        yield reason("seen.other", place, **about, value=value, wanted=act.expected)


def ask_json(step: Step, reasons: list[Reason]) -> dict[str, Any]:
    """Return a request with its numbers as it stands in the result."""
    event, prompt = step.event, step.event["prompt_sha256"]
    hit = step.required is Required.HIT
    true = step.truth.hit(step.ask.prompt, prompt) if hit else step.truth.miss(prompt)
    if step.in_process or step.required is Required.REFUSED:
        true = None
    seen = _answer(step)
    return {
        "step": step.number,
        "what": "ask",
        "artifact": step.ask.prompt,
        "identity": step.ask.identity,
        "required": step.required.value,
        "reasons": [entry.code for entry in reasons],
        "variant": event["variant"],
        "cache_salt": event["cache_salt"],
        "refusal": event["refusal"],
        "artifact_tokens": event["artifact_tokens"],
        "hit_tokens_server": event["hit_tokens_server"],
        "hit_tokens_vllm": event["hit_tokens_vllm"],
        "output_token_ids": None if seen is None else list(seen),
        "expected_token_ids": None if true is None else list(true),
        "first_difference": (
            None if seen is None or true is None else first_difference(list(seen), list(true))
        ),
        "payload_sha256": event["payload_sha256"],
        "top2_margin": step.truth.margins.get((step.ask.prompt, prompt)),
        "weak": is_weak(step),
    }


def is_weak(step: Step) -> bool:
    """True when the answer could not have told a hit from a recomputation."""
    return (
        not step.in_process
        and step.required in (Required.HIT, Required.MISS)
        and step.truth.is_weak(step.ask.prompt, step.event["prompt_sha256"])
    )


def act_json(number: int, act: Act, event: Event, reasons: list[Reason]) -> dict[str, Any]:
    """Return an act with what was seen as it stands in the result."""
    return {
        "step": number,
        "what": act.kind,
        "artifact": act.artifact,
        "required": act.required.value,
        "reasons": [entry.code for entry in reasons],
        "value": event["value"],
        "expected": act.expected,
    }
