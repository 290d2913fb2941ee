# SPDX-License-Identifier: Apache-2.0
"""Judge the demonstration of an unsafe hit: whose KV did an ordinary prompt get?

The worry: a prompt equal to the kept tokens of a transformed entry names that
entry by accident, and is answered from a context it never had. What must be
seen is both answers of the same ordinary prompt, one while the cache held the
compacted entry and one from an empty cache, with the hits that each server
counted. A hit on the compacted entry is the failure, whether or not it changed
a token; without one, equal tokens are the pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.checkers.prompt_checks import first_difference
from kvseal.records.history import Event, History
from kvseal.verdict import Verdict

SCHEMA = "kvseal.unsafe-hit-result.v1"
COUNTS = ("hit_tokens_server", "hit_tokens_vllm")


@dataclass(frozen=True)
class UnsafeHit:
    """A verdict, the sentence that says why, and what was seen."""

    verdict: Verdict
    sentence: str
    evidence: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return result.json."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            **self.evidence,
        }


def judge_unsafe_hit(history: History) -> UnsafeHit:
    """Return the judgement of a history written by `kvseal unsafe-hit`."""
    prompts = history.named("literal_prompt")
    answers = {event["cache"]: event for event in history.named("literal_answer")}
    evidence: dict[str, Any] = {
        "prompt": dict(prompts[0].fields) if prompts else None,
        **{f"answer_{cache}": _fields(answers.get(cache)) for cache in ("compacted", "empty")},
        "first_difference": None,
    }
    missing = _missing(history, evidence)
    if missing:
        return UnsafeHit(Verdict.INCONCLUSIVE, missing, evidence)
    served, true = evidence["answer_compacted"], evidence["answer_empty"]
    found = first_difference(served["output_token_ids"], true["output_token_ids"])
    evidence["first_difference"] = found
    hits = served["hit_tokens_server"]
    outcome = (
        "its answer happens to be its own all the same"
        if found is None
        else f"its answer is not its own from token {found} on"
    )
    if hits:
        return UnsafeHit(
            Verdict.FAIL,
            f"an ordinary prompt was served {hits} tokens of KV that were compacted from "
            f"another, longer prompt; {outcome}",
            evidence,
        )
    if found is not None:
        return UnsafeHit(
            Verdict.INCONCLUSIVE,
            f"no hit was counted, and yet the answers part at token {found}",
            evidence,
        )
    return UnsafeHit(
        Verdict.PASS,
        "the ordinary prompt was computed anew and got its own answer; the compacted entry was "
        "not served to it",
        evidence,
    )


def _fields(event: Event | None) -> dict[str, Any] | None:
    return None if event is None else dict(event.fields)


def _missing(history: History, evidence: dict[str, Any]) -> str | None:
    """What keeps any verdict from being given, in words."""
    served, true = evidence["answer_compacted"], evidence["answer_empty"]
    for event in history.named("error"):
        return f"the run stopped with an error: {event['message']}"
    for event in history.named("interrupted"):
        return f"the run was interrupted by {event['signal']}"
    if not history.named("run_finished") or history.truncated:
        return "the run did not reach its end"
    if None in (evidence["prompt"], served, true):
        return "not both answers of the ordinary prompt are there"
    return _uncounted(served, true)


def _uncounted(served: dict[str, Any], true: dict[str, Any]) -> str | None:
    """What is wrong with the hits that the servers counted, in words."""
    if any(answer[count] is None for answer in (served, true) for count in COUNTS):
        return "a server did not say how many tokens it took from the cache"
    if len({served[count] for count in COUNTS}) != 1:
        return "vLLM and the LMCache server count different hits"
    if any(true[count] for count in COUNTS):
        return "the answer meant to come from an empty cache was hit too"
    return None
