# SPDX-License-Identifier: Apache-2.0
"""One prompt, or the shared-prefix pair, put together as token IDs of an exact length.

A fact comes first and the question for it last, so the answer rests on the KV
at the other end of the prompt. A prompt without room for both is all text.
Called by kvseal.workload.probes.build, which has made sure that the rest fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvseal.workload.draws import Draws
from kvseal.workload.probes.suites import Plan
from kvseal.workload.probes.text import TAIL_OPENINGS, Body, Encode, facts


@dataclass(frozen=True)
class Frame:
    """What stands around the text of a prompt of one format, and how text becomes tokens."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    encode: Encode


def compose_prompt(
    plan: Plan, opening: Sequence[int], frame: Frame, draws: Draws
) -> tuple[int, ...]:
    """Return the `plan.tokens` token IDs of one prompt: frame, opening, text, question, frame."""
    known = facts(draws)
    fact = frame.encode(known[0].sentence(draws))
    head, end = [*frame.before, *opening], list(frame.after)
    question = frame.encode(known[0].question(plan.prompt_format))
    if len(head) + len(fact) + len(question) + len(end) <= plan.tokens:
        head, end = head + fact, question + end
    body = Body(known[1:], draws, frame.encode, unicode=plan.unicode)
    return (*head, *body.tokens(plan.tokens - len(head) - len(end)), *end)


def compose_pair(
    plans: tuple[Plan, Plan], shared_tokens: int, opening: Sequence[int], frame: Frame, draws: Draws
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two prompts with the same first `shared_tokens` token IDs and different tails.

    Each tail begins with its own words and asks for its own fact, both of which
    stand in the shared part.
    """
    known = facts(draws)
    head = [*frame.before, *opening]
    stated = [token for fact in known[:2] for token in frame.encode(fact.sentence(draws))]
    if len(head) + len(stated) <= shared_tokens:
        head += stated
    else:
        stated = []
    body = Body(known[2:], draws, frame.encode, unicode=any(plan.unicode for plan in plans))
    shared = head + body.tokens(shared_tokens - len(head))
    prompts = []
    for plan, fact, words in zip(plans, known, TAIL_OPENINGS, strict=False):
        room = plan.tokens - shared_tokens - len(frame.after)
        start = frame.encode(f" {words}")[:room]
        question = frame.encode(fact.question(plan.prompt_format)) if stated else []
        if len(start) + len(question) > room:
            question = []
        text = body.tokens(room - len(start) - len(question))
        prompts.append((*shared, *start, *text, *question, *frame.after))
    return prompts[0], prompts[1]
