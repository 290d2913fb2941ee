# SPDX-License-Identifier: Apache-2.0
"""Where an answer parts from the control, and whether anything but reuse explains it.

Greedy decoding in 16 bits can turn a near-tie by the order of additions alone,
so a difference is held against reuse only where four other explanations fail:
the control itself was nearly tied there and the answer took its second choice;
native prefix caching in the same run takes the same token; the target's own
cold answer, which reused nothing, differs in the same way; or the answer itself
reused nothing. An explained difference is still no pass.

Equal tokens alone are a blunt witness: a few greedy tokens survive much damage.
So log-probabilities along them are compared too. An answer that moved them by
more than rounding does is no pass, and no other answer excuses what it differs
in: it is like none of them, even where its token is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.prompt_checks import NEAR_TIE_MARGINS, first_difference
from kvseal.records.history import Event

LOGPROB_BOUNDS = {"float32": 0.01, "float16": 0.1, "bfloat16": 0.5}
"""How far reuse may move the log-probability of a token that both answers took.
Source: docs/evidence/verify-h200: 178 equal answers from sound reuse in float16 moved by 0.0181
at most, 16 equal ones from wrong KV by 0.27 at least; 1e-5 in float32 on a CPU; in bfloat16
0.115 between two sound implementations (docs/evidence/h200)."""


@dataclass(frozen=True)
class Difference:
    """The first token in which an answer is not the control's.

    A token is None where that answer had ended. `margin` is the distance of the
    control's two best log-probabilities there, None where it is not known.
    `explanation` is near_tie, second_witness, without_reuse or like_cold; no_control,
    other_prompt or cut_short where it can't be held against the target; None: nothing
    explains it.
    """

    index: int
    control_token: int | None
    token: int | None
    margin: float | None
    explanation: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the difference as it stands in the report."""
        return {
            "index": self.index,
            "control_token": self.control_token,
            "token": self.token,
            "margin": self.margin,
            "explanation": self.explanation,
        }


def difference(
    answer: Event, control: Event, *, cold: Event | None, witnesses: Iterable[Event], dtype: str
) -> Difference | None:
    """Return how `answer` differs from `control`, None when it does not.

    `cold` is the target's cold answer to the same probe, `witnesses` the answers
    of native prefix caching to it where that is another target of the run.
    """
    index = first_difference(control["token_ids"], answer["token_ids"])
    if index is None:
        return None
    token = token_at(answer, index)
    pair = _ranked(control, index)
    return Difference(
        index=index,
        control_token=token_at(control, index),
        token=token,
        margin=None if pair is None else pair[0],
        explanation=_explain(answer, control, index, cold=cold, witnesses=witnesses, dtype=dtype),
    )


def token_at(answer: Event, index: int) -> int | None:
    """Return the generated token at `index`, None where the answer had ended."""
    tokens: list[int] = answer["token_ids"]
    return tokens[index] if index < len(tokens) else None


def largest_logprob_difference(answer: Event, control: Event) -> float | None:
    """Return how far the log-probabilities of equal tokens are apart, at most.

    Taken over the tokens before the first difference for which both answers
    have a log-probability; None where there is none.
    """
    index = first_difference(control["token_ids"], answer["token_ids"])
    steps = len(control["token_ids"]) if index is None else index
    distances = [
        abs(ours - theirs)
        for ours, theirs in (
            (_logprob(answer, step), _logprob(control, step)) for step in range(steps)
        )
        if ours is not None and theirs is not None
    ]
    return max(distances, default=None)


def moved(answer: Event, other: Event, dtype: str) -> float | None:
    """Return `largest_logprob_difference` where rounding in `dtype` can't explain it, else None.

    None, too, for a dtype without a bound and where log-probabilities are not known.
    """
    largest = largest_logprob_difference(answer, other)
    bound = LOGPROB_BOUNDS.get(dtype)
    return largest if largest is not None and bound is not None and largest > bound else None


def _explain(
    answer: Event,
    control: Event,
    index: int,
    *,
    cold: Event | None,
    witnesses: Iterable[Event],
    dtype: str,
) -> str | None:
    def alike(other: Event) -> bool:
        """The other answer parts from the control at the same place, by the same token."""
        return (
            first_difference(control["token_ids"], other["token_ids"]) == index
            and token_at(other, index) == token_at(answer, index)
            and moved(answer, other, dtype) is None
        )

    if answer["kind"] == "cold" and answer["cached_tokens"] == 0:
        return "without_reuse"
    if moved(answer, control, dtype) is None and _near_tie(control, answer, index, dtype):
        return "near_tie"
    if any(alike(witness) for witness in witnesses):
        return "second_witness"
    # From there on the cold answer is what this one has to be.
    if cold is not None and cold["cached_tokens"] == 0 and alike(cold):
        second = first_difference(cold["token_ids"], answer["token_ids"])
        if second is None or _near_tie(cold, answer, second, dtype):
            return "like_cold"
    return None


def _near_tie(reference: Event, answer: Event, index: int, dtype: str) -> bool:
    """True when `answer` takes the second choice of `reference` in a tie of this dtype."""
    pair = _ranked(reference, index)
    if pair is None or dtype not in NEAR_TIE_MARGINS:
        return False
    margin, runner_up = pair
    return margin < NEAR_TIE_MARGINS[dtype] and token_at(answer, index) == runner_up


def _ranked(answer: Event, index: int) -> tuple[float, int] | None:
    """Return the distance of the two likeliest tokens at `index`, and the one not taken.

    None where they were not recorded, or the token that was taken is neither.
    """
    pairs, token = answer["top2"], token_at(answer, index)
    if len(pairs) != len(answer["token_ids"]) or token is None or pairs[index] is None:
        return None
    (one, likely), (other, unlikely) = pairs[index]
    if one == other or token not in (one, other):
        return None
    return abs(likely - unlikely), other if token == one else one


def _logprob(answer: Event, index: int) -> float | None:
    """Return the log-probability of the generated token at `index`, where it is known."""
    if _ranked(answer, index) is None:
        return None
    pair: list[list[float]] = answer["top2"][index]
    return next(value for token, value in pair if token == answer["token_ids"][index])
