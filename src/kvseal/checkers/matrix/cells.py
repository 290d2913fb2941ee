# SPDX-License-Identifier: Apache-2.0
"""Judge one cell: whole and in order, named as its case says, and each step what it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.names import Names
from kvseal.checkers.matrix.order import check_order
from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.prompts import Subject, check_prompt
from kvseal.checkers.matrix.reasons import Outcome, Reason, reason, worst
from kvseal.checkers.matrix.steps import (
    Step,
    act_json,
    ask_json,
    is_weak,
    judge_act,
    judge_ask,
)
from kvseal.checkers.matrix.truth import Truth
from kvseal.workload.matrix import ARTIFACTS, Act, Case, Required, required_here


@dataclass(frozen=True)
class CellResult:
    """What a cell came to. `weak` counts the answers that could not have told a difference."""

    place: Place
    outcome: Outcome
    required: Required
    reasons: tuple[Reason, ...]
    stores: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]
    cache_salt: str | None
    weak: int

    def to_json(self) -> dict[str, Any]:
        """Return the cell as it stands in the result, within its row."""
        return {
            "backend": self.place.backend,
            "after": self.place.after,
            "outcome": self.outcome.value,
            "required": self.required.value,
            "cache_salt": self.cache_salt,
            "stores": list(self.stores),
            "steps": list(self.steps),
        }


def required_of(case: Case, place: Place) -> Required:
    """Return what the cell is about: its last step here, or its refused store."""
    if not case.steps:
        return case.required
    return _required(case.steps[-1], place)


def judge_cell(
    evidence: Evidence, truth: Truth, prompts: Mapping[Subject, str], place: Place
) -> CellResult:
    """Return what one cell came to, with every reason against it."""
    case, cell = evidence.cases[place.case], evidence.of(place)
    names = Names(evidence, place)
    reasons = list(check_order(evidence, place))
    if cell.begun is not None:
        reasons += names.check_salt_of_cell()
    stores: list[dict[str, Any]] = []
    for number, event in enumerate(cell.stored):
        reasons += names.check_store(event)
        reasons += _judge_store(evidence, place, number)
        stores.append({name: event[name] for name in STORE_FIELDS})
    steps: list[dict[str, Any]] = []
    weak = 0
    for number, step in enumerate(case.steps):
        found = cell.step(number)
        if found is None or found.name != ("observed" if isinstance(step, Act) else "asked"):
            continue
        required = _required(step, place)
        if isinstance(step, Act):
            own = list(judge_act(place, number, step, found))
            steps.append(act_json(number, step, found, own))
        else:
            asked = Step(evidence, truth, place, number, step, found, required)
            own = [
                *judge_ask(asked),
                *names.check_ask(number, step, found, required),
                *check_prompt(asked, prompts),
            ]
            steps.append(ask_json(asked, own))
            weak += is_weak(asked)
        reasons += own
    return CellResult(
        place=place,
        outcome=worst(reasons),
        required=required_of(case, place),
        reasons=tuple(reasons),
        stores=tuple(stores),
        steps=tuple(steps),
        cache_salt=None if cell.begun is None else cell.begun["cache_salt"],
        weak=weak,
    )


STORE_FIELDS = ("artifact", "variant", "cache_salt", "tokens", "refusal")


def _required(step: Any, place: Place) -> Required:
    name = step.artifact if isinstance(step, Act) else step.prompt
    return required_here(
        step, local=ARTIFACTS[name].local, backend=place.backend, after=place.after
    )


def _judge_store(evidence: Evidence, place: Place, number: int) -> Iterator[Reason]:
    case, event = evidence.cases[place.case], evidence.of(place).stored[number]
    if number >= len(case.store) or case.store[number] != event["artifact"]:
        return  # said already: it is not in the case
    name, made = event["artifact"], evidence.artifacts.get(event["artifact"])
    if number in case.refused_stores:
        if event["refusal"] is None:
            yield reason("store.not_refused", place, artifact=name)
        return
    if event["refusal"] is not None:
        yield reason("store.refused", place, artifact=name, refusal=event["refusal"])
        return
    chunk = evidence.spec.lmcache.chunk_size_tokens
    wanted = 0 if made is None else made["tokens"] // chunk * chunk
    if event["tokens"] < wanted:
        yield reason("store.short", place, artifact=name, tokens=event["tokens"], wanted=wanted)
