# SPDX-License-Identifier: Apache-2.0
"""Every reason that keeps a matrix run from passing: a code, what it makes of a cell, its text.

Codes are part of the result format and never change their meaning. What was
seen to be wrong is FAIL; what must be known and is not is INCONCLUSIVE. A run
without any reason passes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.matrix.place import Place
from kvseal.verdict import Verdict


class Outcome(enum.Enum):
    """What a cell came to, the worst first: that one counts where a cell has several."""

    UNSAFE_HIT = "unsafe_hit"
    WRONG_ANSWER = "wrong_answer"
    NOT_REFUSED = "not_refused"
    LOST_HIT = "lost_hit"
    NOT_SEEN = "not_seen"
    INCONCLUSIVE = "inconclusive"
    PASSED = "passed"

    @property
    def verdict(self) -> Verdict:
        """PASS, FAIL or INCONCLUSIVE."""
        if self is Outcome.PASSED:
            return Verdict.PASS
        return Verdict.INCONCLUSIVE if self is Outcome.INCONCLUSIVE else Verdict.FAIL


_UNSAFE, _WRONG, _LOST = Outcome.UNSAFE_HIT, Outcome.WRONG_ANSWER, Outcome.LOST_HIT
_TAKEN, _OTHER, _OPEN = Outcome.NOT_REFUSED, Outcome.NOT_SEEN, Outcome.INCONCLUSIVE

REASONS: dict[str, tuple[Outcome, str]] = {
    "run.not_started": (_OPEN, "the history holds no start of a run"),
    "run.spec_differs": (
        _OPEN,
        "the run was started for spec {started}, but spec.json has digest {stored}",
    ),
    "run.out_of_order": (_OPEN, "{event} is not where it has to be in the history"),
    "run.event_repeated": (_OPEN, "{event} is recorded {count} times"),
    "run.environment_missing": (_OPEN, "the history does not say what the run stood on"),
    "run.error": (_OPEN, "the run stopped with an error in {where}: {message}"),
    "run.interrupted": (_OPEN, "the run was interrupted by {signal}"),
    "run.truncated": (_OPEN, "the last line of the history was broken off in writing"),
    "run.not_finished": (_OPEN, "the run did not reach its end"),
    "backend.unusable": (_OPEN, "backend {backend} can't be used here: {message}; {remedy}"),
    "engines.missing": (_OPEN, "the history does not say that {engine} had started"),
    "artifact.missing": (_OPEN, "artifact {name} was not made"),
    "artifact.repeated": (_OPEN, "artifact {name} was made {count} times, so none of them counts"),
    "artifact.unknown": (_OPEN, "artifact {name} is neither in the table nor of mixed requests"),
    "artifact.kind": (_OPEN, "artifact {name} is {found}, the table says {wanted}"),
    "artifact.variant": (_OPEN, "artifact {name} can't have variant {variant!r}: {problem}"),
    "artifact.manifest": (_OPEN, "the manifest of artifact {name} is not its own: {problem}"),
    "artifact.same_variant": (_OPEN, "{names} have one variant, so nothing can keep them apart"),
    "artifact.tokens_differ": (
        _OPEN,
        "{names} must have the same tokens and do not, so that one can't be taken for the other",
    ),
    "control.drifts": (_OPEN, "the control answered one prompt of {tokens} tokens in two ways"),
    "witness.drifts": (_OPEN, "the witness answered one prompt from {artifact} in two ways"),
    "case.none": (_OPEN, "no cell had to be run, so the run shows nothing"),
    "case.unknown": (_OPEN, "the run spec asks for a case {name!r}, which the table does not have"),
    "cell.missing": (_OPEN, "the cell was not run"),
    "cell.repeated": (_OPEN, "the cell is recorded {count} times"),
    "cell.both": (_OPEN, "the cell is recorded both as run and as not run"),
    "cell.unknown": (_OPEN, "{count} events are about a cell that was not to be run"),
    "cell.not_applicable": (
        _OPEN,
        "the driver did not run it ({reason}), but the table says that it exists here",
    ),
    "cell.salt_shared": (_OPEN, "it is tenant {salt!r}, and so is {other}"),
    "store.missing": (_OPEN, "{artifact} was not stored: {found} of {wanted} stores are recorded"),
    "store.unexpected": (_OPEN, "{artifact} was stored, which is not in the case"),
    "store.short": (_OPEN, "{tokens} of the {wanted} tokens of {artifact} were stored"),
    "store.out_of_order": (_OPEN, "{artifact} was stored before the cell began or after a step"),
    "store.refused": (_LOST, "{artifact} was refused in storing: {refusal}"),
    "store.not_refused": (_TAKEN, "{artifact} had to be refused in storing and was stored"),
    "step.missing": (_OPEN, "step {step} is not recorded"),
    "step.repeated": (_OPEN, "step {step} is recorded {count} times, so none of them counts"),
    "step.unknown": (_OPEN, "step {step} is recorded, which is not in the case"),
    "step.kind": (_OPEN, "step {step} is {wanted}, recorded is {found}"),
    "step.out_of_order": (_OPEN, "step {step} did not come after the one before it"),
    "restart.missing": (_OPEN, "no restart of {what} is recorded between storing and asking"),
    "memory.not_emptied": (
        _OPEN,
        "the server's memory was not emptied between storing and asking, so a hit says nothing of "
        "the second tier",
    ),
    "restart.unexpected": (_OPEN, "{what} was restarted within the cell, which is not its case"),
    "identity.variant": (_OPEN, "{where} names variant {found!r}, the case demands {wanted}"),
    "identity.salt": (_OPEN, "{where} is of tenant {found!r}, the case demands {wanted}"),
    "identity.not_fresh": (_OPEN, "{artifact} is sealed as {variant}, and so it is in {other}"),
    "asked.artifact": (_OPEN, "step {step} is about {found}, the case asks for {wanted}"),
    "asked.prompt_differs": (
        _OPEN,
        "step {step} asks other tokens for {artifact} than the rest of the run does",
    ),
    "asked.hit_length": (
        _OPEN,
        "step {step} takes {found} tokens for a full hit, the artifact has {wanted}",
    ),
    "hit.unsafe": (
        _UNSAFE,
        "step {step}: {counted}, where nothing may be loaded",
    ),
    "hit.lost": (_LOST, "step {step}: {counted}, where {wanted} tokens had to be loaded"),
    "hit.unknown": (_OPEN, "step {step}: {counted}, so nobody knows what was loaded"),
    "hit.differs": (_OPEN, "step {step}: {counted}, where {wanted} tokens had to be loaded"),
    "answer.missing": (_OPEN, "step {step} has no answer to compare"),
    "answer.no_truth": (_OPEN, "step {step}: there is no {truth} to compare with"),
    "answer.wrong": (_WRONG, "step {step}: {counted}, and the answer is not that of {truth}"),
    "answer.indistinct": (
        _OPEN,
        "step {step}: {rival} would be answered alike, and only the answer could tell them apart",
    ),
    "refusal.missing": (_TAKEN, "step {step} had to be refused and was not"),
    "refusal.unexpected": (_LOST, "step {step} was refused: {refusal}"),
    "seen.other": (_OTHER, "step {step}, {what}: {value!r} was seen, not {wanted!r}"),
    "mixed.missing": (_OPEN, "{found} of {wanted} mixed requests are recorded"),
    "mixed.unexpected": (_OPEN, "mixed request {index} is recorded twice, or was not to be sent"),
    "mixed.one_sided": (_OPEN, "the mixed requests show nothing: {problem}"),
    "mixed.identity": (_OPEN, "mixed request {index} names variant {found!r} for {wanted}"),
    "mixed.unsafe_hit": (
        _UNSAFE,
        "mixed request {index} ({kind}): {counted}, of KV that it may not get",
    ),
    "mixed.lost_hit": (
        _LOST,
        "mixed request {index} ({kind}): {counted}, where {wanted} tokens had to be loaded",
    ),
    "mixed.wrong_answer": (
        _WRONG,
        "mixed request {index} ({kind}): {counted}, and the answer is not that of {truth}",
    ),
    "mixed.hit_unknown": (
        _OPEN,
        "mixed request {index} ({kind}): {counted}, so nobody knows what was loaded",
    ),
    "mixed.hit_differs": (
        _OPEN,
        "mixed request {index} ({kind}): {counted}, where {wanted} tokens had to be loaded",
    ),
    "mixed.no_truth": (_OPEN, "mixed request {index} ({kind}): there is no {truth}"),
    "mixed.indistinct": (
        _OPEN,
        "mixed request {index} ({kind}): ordinary KV and {artifact} would be answered alike",
    ),
    "result.missing": (_OPEN, "the run folder holds no result.json"),
    "result.differs": (_WRONG, "result.json is not what its own history gives, in {fields}"),
}


@dataclass(frozen=True)
class Reason:
    """One finding; `place` is None where it is about no single cell."""

    code: str
    message: str
    place: Place | None = None
    step: int | None = None

    @property
    def outcome(self) -> Outcome:
        """What it makes of its cell."""
        return REASONS[self.code][0]

    def to_json(self) -> dict[str, Any]:
        """Return the reason as it stands in the result."""
        return {
            "code": self.code,
            "verdict": self.outcome.verdict.value,
            "message": self.message,
            "cell": None if self.place is None else self.place.to_json(),
        }


def reason(code: str, place: Place | None = None, **values: object) -> Reason:
    """Return a reason with its text filled in from `values`; a value `step` is kept beside it."""
    step = values.get("step")
    message = REASONS[code][1].format(**values)
    return Reason(code, message, place, step if isinstance(step, int) else None)


def worst(reasons: list[Reason]) -> Outcome:
    """Return what reasons make of a cell together; of none, PASSED."""
    found = {entry.outcome for entry in reasons}
    return next((outcome for outcome in Outcome if outcome in found), Outcome.PASSED)
