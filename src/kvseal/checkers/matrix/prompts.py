# SPDX-License-Identifier: Apache-2.0
"""Did a request ask for what its step is about: the artifact, its tokens, all of its chunks?

Every must-hit has its must-miss: a request that misses has to send the very
tokens with which another one hits, or it would miss whatever the names are. So
all requests for one artifact's tokens, with as many chunks behind them, have to
send one prompt throughout a run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.checkers.matrix.steps import Step
from kvseal.workload.matrix import Ask, Required
from kvseal.workload.matrix.case import PROCESS

Subject = tuple[bool, str, int]
"""Whether there is no engine, digest of the artifact's tokens, chunks behind them."""


def prompts_of(evidence: Evidence) -> Mapping[Subject, str]:
    """Return the prompt that a run sends for each subject, as a digest: the one sent most often."""
    sent: dict[Subject, Counter[str]] = defaultdict(Counter)
    for place in evidence.places:
        for number, step in enumerate(evidence.cases[place.case].steps):
            event = evidence.of(place).step(number)
            if isinstance(step, Ask) and event is not None and event.name == "asked":
                subject = _subject(evidence, place, step)
                if subject is not None:
                    sent[subject][event["prompt_sha256"]] += 1
    return {subject: counts.most_common(1)[0][0] for subject, counts in sent.items()}


def check_prompt(asked: Step, prompts: Mapping[Subject, str]) -> Iterator[Reason]:
    """Yield what is wrong with what a request asked for; `prompts` are those of `prompts_of`."""
    step, event, evidence = asked.ask, asked.event, asked.evidence
    place, number = asked.place, asked.number
    if event["artifact"] != step.prompt:
        yield reason(
            "asked.artifact", place, step=number, found=event["artifact"], wanted=step.prompt
        )
    subject = _subject(evidence, place, step)
    if subject is not None and prompts[subject] != event["prompt_sha256"]:
        yield reason("asked.prompt_differs", place, step=number, artifact=step.prompt)
    made = evidence.artifacts.get(step.prompt)
    if made is None or asked.required is not Required.HIT:
        return
    chunk = evidence.spec.lmcache.chunk_size_tokens
    wanted = (made["tokens"] + step.descendants * chunk) // chunk * chunk
    if event["artifact_tokens"] != wanted or wanted == 0:
        yield reason(
            "asked.hit_length", place, step=number, found=event["artifact_tokens"], wanted=wanted
        )


def _subject(evidence: Evidence, place: Place, step: Ask) -> Subject | None:
    made = evidence.artifacts.get(step.prompt)
    if made is None:
        return None
    return place.backend == PROCESS, made["token_ids_sha256"], step.suffix_chunks
