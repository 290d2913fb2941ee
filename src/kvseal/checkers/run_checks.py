# SPDX-License-Identifier: Apache-2.0
"""Did the run as a whole take place as it had to? Start to end, empty caches, order of arms."""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.checkers.evidence import Evidence
from kvseal.checkers.reasons import Reason, reason
from kvseal.records.events import ARMS
from kvseal.spec.runspec import RunSpec


def check_run(spec: RunSpec, evidence: Evidence) -> Iterator[Reason]:
    """Yield what is wrong with the run as a whole."""
    yield from evidence.repeated
    yield from _ends(spec, evidence)
    yield from _arms(evidence)
    yield from _prompts(spec, evidence)


def _ends(spec: RunSpec, evidence: Evidence) -> Iterator[Reason]:
    history = evidence.history
    started = history.named("run_started")
    if not started:
        yield reason("run.not_started")
    for event in started:
        if event["spec_sha256"] != spec.sha256():
            yield reason("run.spec_differs", started=event["spec_sha256"], stored=spec.sha256())
    if not history.named("environment"):
        yield reason("run.environment_missing")
    if not history.named("engines_started"):
        yield reason("run.engines_missing")
    for event in history.named("error"):
        yield reason("run.error", where=event["where"], message=event["message"])
    for event in history.named("interrupted"):
        yield reason("run.interrupted", signal=event["signal"])
    if history.truncated:
        yield reason("run.truncated")
    if not history.events or history.events[-1].name != "run_finished":
        yield reason("run.not_finished")


def _arms(evidence: Evidence) -> Iterator[Reason]:
    """Each arm starts from a cache that the server itself counted as empty."""
    for arm in ARMS:
        answers = evidence.answered(arm)
        clear = evidence.clears.get(arm)
        if clear is None:
            yield reason("cache.not_cleared", arm=arm)
            continue
        if clear["objects_after"] != 0:
            yield reason("cache.not_empty", arm=arm, objects=clear["objects_after"])
        if answers and answers[0].seq < clear.seq:
            yield reason("cache.cleared_late", arm=arm)
    baseline, clear = evidence.answered("baseline"), evidence.clears.get("snapkv")
    if baseline and clear is not None and baseline[-1].seq > clear.seq:
        for arm in ARMS:
            yield reason("arms.interleaved", arm=arm)


def _prompts(spec: RunSpec, evidence: Evidence) -> Iterator[Reason]:
    """The prompts are those the spec asks for: all, no others, no two alike."""
    work = spec.workload
    recorded = {event["index"] for event in evidence.history.named("prompt")}
    for index in sorted(set(range(work.prompts)) - recorded):
        yield reason("prompt.missing", index=index)
    for index in sorted(recorded - set(range(work.prompts))):
        yield reason("prompt.unexpected", index=index, prompts=work.prompts)
    sized = not (work.dataset_file or work.dataset_hub)
    first: dict[str, int] = {}
    for index, event in sorted(evidence.prompts.items()):
        if sized and event["prompt_tokens"] != work.prompt_tokens:
            yield reason(
                "prompt.length",
                index=index,
                tokens=event["prompt_tokens"],
                wanted=work.prompt_tokens,
            )
        other = first.setdefault(event["prompt_token_ids_sha256"], index)
        if other != index:
            yield reason("prompt.repeated", index=index, other=other)
