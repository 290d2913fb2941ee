# SPDX-License-Identifier: Apache-2.0
"""What the answers must be, by parties that have no cache: the control and the witness.

The control computed a literal prompt anew: what a miss must answer. The witness
decoded from an artifact's own tensors: what a hit must answer. Where one of
them answered a prompt in two ways, it is no truth about that prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.records.history import History
from kvseal.workload.matrix import ARTIFACTS

Tokens = tuple[int, ...]

CONTROL = "the control"
ORDINARY = "ordinary"


@dataclass(frozen=True)
class Truth:
    """Answers by prompt digest: the control's, and the witness's for each artifact."""

    controls: Mapping[str, Tokens]
    witnesses: Mapping[tuple[str, str], Tokens]
    margins: Mapping[tuple[str, str], float | None]
    reasons: tuple[Reason, ...] = ()

    def miss(self, prompt_sha256: str) -> Tokens | None:
        """Return what a prompt must answer when nothing is loaded, None where nobody knows."""
        return self.controls.get(prompt_sha256)

    def hit(self, artifact: str, prompt_sha256: str) -> Tokens | None:
        """Return what a prompt must answer from the artifact's KV, None where nobody knows.

        Ordinary KV is what the control computed too, so its answer is the control's.
        """
        if artifact in ARTIFACTS and ARTIFACTS[artifact].kind == ORDINARY:
            return self.miss(prompt_sha256)
        return self.witnesses.get((artifact, prompt_sha256))

    def is_weak(self, artifact: str, prompt_sha256: str) -> bool:
        """True when a hit on this transformed artifact would be answered as a recomputation is."""
        seen = self.witnesses.get((artifact, prompt_sha256))
        return seen is not None and seen == self.miss(prompt_sha256)


def collect_truth(history: History) -> Truth:
    """Return what control and witness answered. Equal answers to one prompt are one."""
    found: list[Reason] = []
    controls: dict[str, set[Tokens]] = {}
    lengths: dict[str, int] = {}
    for event in history.named("control"):
        prompt = event["prompt_sha256"]
        controls.setdefault(prompt, set()).add(tuple(event["output_token_ids"]))
        lengths[prompt] = event["prompt_tokens"]
    for prompt, answers in controls.items():
        if len(answers) > 1:
            found.append(reason("control.drifts", tokens=lengths[prompt]))
    witnesses: dict[tuple[str, str], set[Tokens]] = {}
    margins: dict[tuple[str, str], float | None] = {}
    for event in history.named("witness"):
        key = (event["artifact"], event["prompt_sha256"])
        witnesses.setdefault(key, set()).add(tuple(event["output_token_ids"]))
        margins[key] = event["top2_margin"]
    for (artifact, _), answers in witnesses.items():
        if len(answers) > 1:
            found.append(reason("witness.drifts", artifact=artifact))
    return Truth(
        {prompt: answers.copy().pop() for prompt, answers in controls.items() if _sound(answers)},
        {key: answers.copy().pop() for key, answers in witnesses.items() if _sound(answers)},
        margins,
        tuple(found),
    )


def _sound(answers: set[Tokens]) -> bool:
    return len(answers) == 1 and () not in answers
