# SPDX-License-Identifier: Apache-2.0
"""The probes of a suite, from seed, geometry and tokenizer. Called by the verify driver.

The same arguments give the same token IDs on every machine. Everything that
can't be had as asked is refused before a text is made: nothing is shortened,
left out, or put into another format instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.workload.draws import Draws
from kvseal.workload.probes.compose import Frame, compose_pair, compose_prompt
from kvseal.workload.probes.preflight import check_arguments, check_limit, check_room
from kvseal.workload.probes.probe import Geometry, Probe
from kvseal.workload.probes.suites import PAIR_CHUNKS, Plan, plan_fixture, plan_table
from kvseal.workload.probes.text import opening, titles
from kvseal.workload.probes.tokenizer import ProbeTokenizer

GENERATION = "kvseal.probes.v1"
"""Part of every draw: raised when the text changes, so old manifests stay told apart."""


def build_probes(
    suite: str,
    *,
    formats: tuple[str, ...],
    reuse_counts: tuple[int, ...],
    geometry: Geometry,
    max_tokens: int,
    seed: int,
    tokenizer: ProbeTokenizer,
    lengths: Sequence[Mapping[str, Any]] | None = None,
) -> tuple[Probe, ...]:
    """Return the probes of `suite`, those of the first reuse count first.

    So a prompt's control answers come at different times of a run. `formats`
    holds raw, chat or both; `lengths` are the rows `{tokens, reuse_count,
    format}` of the fixture, for the acceptance suite alone. `max_tokens` is the
    output budget of one answer.

    Raises:
        OptionError: naming the option of `kvseal verify` that can't be had, what
            would do, and the remedy.
    """
    check_arguments(
        suite,
        formats=formats,
        reuse_counts=reuse_counts,
        geometry=geometry,
        max_tokens=max_tokens,
        seed=seed,
        lengths=lengths,
    )
    if lengths is not None:
        plans = plan_fixture(lengths, formats, reuse_counts)
    else:
        plans = plan_table(suite, formats, reuse_counts, geometry)
    check_limit(suite, plans, geometry, max_tokens)
    frames = _frames(plans, tokenizer)
    draws = [Draws(GENERATION, seed, suite, number) for number in range(len(plans))]
    names = titles(Draws(GENERATION, seed, suite, "titles"), len(plans))
    openings = [
        tokenizer.encode(opening(name, draw)) for name, draw in zip(names, draws, strict=True)
    ]
    room = {name: (len(frame.before), len(frame.after)) for name, frame in frames.items()}
    check_room(suite, plans, geometry, room, [len(text) for text in openings])
    prompts = _prompts(plans, openings, draws, frames, PAIR_CHUNKS * geometry.chunk_tokens)
    return _probes(plans, prompts, reuse_counts)


def _frames(plans: Sequence[Plan], tokenizer: ProbeTokenizer) -> dict[str, Frame]:
    frames: dict[str, Frame] = {}
    for prompt_format in sorted({plan.prompt_format for plan in plans}):
        before, after = tokenizer.chat_frame() if prompt_format == "chat" else (tokenizer.bos(), [])
        frames[prompt_format] = Frame(tuple(before), tuple(after), tokenizer.encode)
    return frames


def _prompts(
    plans: Sequence[Plan],
    openings: Sequence[list[int]],
    draws: Sequence[Draws],
    frames: Mapping[str, Frame],
    shared_tokens: int,
) -> list[tuple[int, ...]]:
    """Return the token IDs of each plan; a pair's two stand next to each other."""
    prompts: list[tuple[int, ...]] = []
    for number, plan in enumerate(plans):
        frame = frames[plan.prompt_format]
        if plan.pair == 0:
            prompts.append(compose_prompt(plan, openings[number], frame, draws[number]))
        elif plan.pair == 1:
            pair = (plan, plans[number + 1])
            prompts += compose_pair(pair, shared_tokens, openings[number], frame, draws[number])
    return prompts


def _probes(
    plans: Sequence[Plan], prompts: Sequence[tuple[int, ...]], reuse_counts: Sequence[int]
) -> tuple[Probe, ...]:
    probes: list[Probe] = []
    for count in reuse_counts:
        for number, (plan, token_ids) in enumerate(zip(plans, prompts, strict=True)):
            if count not in plan.reuse_counts:
                continue
            name = f"{plan.prompt}-x{count}"
            second = plan.pair == 2
            probes.append(
                Probe(
                    id=name,
                    case=plan.case,
                    prompt_format=plan.prompt_format,
                    reuse_count=count,
                    prompt=plan.prompt,
                    scope=probes[-1].scope if second else name,
                    token_ids=token_ids,
                    cold_prefix_tokens=_common(prompts[number - 1], token_ids) if second else 0,
                )
            )
    return tuple(probes)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many leading token IDs the two have in common."""
    shortest = min(len(first), len(second))
    return next((at for at in range(shortest) if first[at] != second[at]), shortest)
