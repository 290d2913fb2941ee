# SPDX-License-Identifier: Apache-2.0
"""What is refused before a probe is made: arguments, and prompts that do not fit.

Each error names the option of `kvseal verify`, its value, the smallest or
largest value that would do, and the remedy. Called by
kvseal.workload.probes.build alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.canonical import MAX_SAFE_INTEGER
from kvseal.errors import OptionError
from kvseal.workload.probes.probe import FORMATS, Geometry
from kvseal.workload.probes.suites import PAIR_CHUNKS, SUITES, TABLES, Plan, table_lengths
from kvseal.workload.probes.text import TITLES

PAIR_TAIL_TOKENS = 2
"""Tokens of its own that the tail of a shared-prefix prompt has at least."""


def check_arguments(
    suite: str,
    *,
    formats: Sequence[str],
    reuse_counts: Sequence[int],
    geometry: Geometry,
    max_tokens: int,
    seed: int,
    lengths: Sequence[Mapping[str, Any]] | None,
) -> None:
    """Refuse what is wrong with one argument, whatever the others are.

    Raises:
        OptionError: naming the option.
    """
    if suite not in SUITES:
        raise OptionError(
            "no such suite", option="--suite", value=suite, expected=" or ".join(SUITES)
        )
    if not formats or len(set(formats)) < len(formats) or not set(formats) <= set(FORMATS):
        raise OptionError(
            "prompts can't be of this format",
            option="--prompt-format",
            value=",".join(map(str, formats)),
            expected="raw, chat or both",
        )
    good = all(type(count) is int and count > 0 for count in reuse_counts)
    if not reuse_counts or not good or len(set(reuse_counts)) < len(reuse_counts):
        raise OptionError(
            "these are no reuse counts",
            option="--reuse-counts",
            value=",".join(map(str, reuse_counts)),
            expected="one or more different whole numbers from 1 on, as 1,3",
        )
    _whole("--max-tokens", max_tokens, 1)
    _whole("--seed", seed, 0)
    _whole("--chunk-size", geometry.chunk_tokens, 1)
    _whole("--block-size", geometry.block_tokens, 1)
    _whole("--max-model-len", geometry.max_model_len, 1)
    chunk, block = geometry.chunk_tokens, geometry.block_tokens
    if chunk % block:
        raise OptionError(
            "a chunk must be whole blocks",
            option="--chunk-size",
            value=chunk,
            expected=f"a multiple of --block-size {block}",
            remedy=f"use {_up(chunk, block)}, or a --block-size that divides {chunk}",
        )
    if (lengths is not None) != (suite == "acceptance"):
        raise OptionError(
            "the acceptance suite takes its prompts from a fixture, and no other suite does",
            option="--fixture",
            value=None if lengths is None else f"{len(lengths)} probes",
            expected="a fixture" if lengths is None else f"none with --suite {suite}",
        )
    if lengths is not None and not 1 <= len(lengths) <= len(TITLES):
        raise OptionError(
            "a fixture of this size can't be made",
            option="--fixture",
            value=f"{len(lengths)} probes",
            expected=f"1 to {len(TITLES)} probes",
        )


def check_limit(suite: str, plans: Sequence[Plan], geometry: Geometry, max_tokens: int) -> None:
    """Refuse prompts that with `max_tokens` of output are longer than the model may take.

    Raises:
        OptionError: naming --max-model-len and the smallest one that would do.
    """
    longest = max(plan.tokens for plan in plans)
    limit, block = geometry.max_model_len, geometry.block_tokens
    if longest + max_tokens <= limit:
        return
    remedy = "raise --max-model-len if the model allows it, or lower --max-tokens"
    if suite in TABLES:
        smaller = [
            chunk
            for chunk in range(block, geometry.chunk_tokens, block)
            if max(table_lengths(TABLES[suite], chunk, block)) + max_tokens <= limit
        ]
        if smaller:
            remedy += f", or use a chunk of at most {max(smaller)} tokens (--chunk-size)"
    raise OptionError(
        f"the longest prompt of {longest} tokens and {max_tokens} new ones do not fit",
        option="--max-model-len",
        value=limit,
        expected=f"at least {longest + max_tokens}",
        remedy=remedy,
    )


def check_room(
    suite: str,
    plans: Sequence[Plan],
    geometry: Geometry,
    frames: Mapping[str, tuple[int, int]],
    openings: Sequence[int],
) -> None:
    """Refuse prompts too short for what each must hold: frame, opening and a token of text.

    `frames` has the tokens before and after the text for each format,
    `openings` the tokens of each prompt's opening.

    Raises:
        OptionError: naming --chunk-size and the smallest one that would do, or --fixture.
    """
    chunk, block = geometry.chunk_tokens, geometry.block_tokens
    found = [plan.tokens for plan in plans]
    short = [
        plan
        for plan, opening in zip(plans, openings, strict=True)
        if not _holds(plan, plan.tokens, chunk, frames[plan.prompt_format], opening)
    ]
    if not short:
        return
    first = short[0]
    before, after = frames[first.prompt_format]
    raw = "" if first.prompt_format == "raw" else ", or use --prompt-format raw"
    what = (
        f"the {first.prompt_format} prompt {first.case} of {first.tokens} tokens is too short "
        f"for the {before + after} tokens around its text and an opening that tells it apart"
    )
    if suite not in TABLES:
        raise OptionError(
            what,
            option="--fixture",
            value=first.tokens,
            expected=f"at least {before + after + max(openings) + 1} tokens",
            remedy=f"correct the fixture{raw}",
        )
    enough = chunk
    while not all(
        _holds(plan, tokens, enough, frames[plan.prompt_format], opening)
        for plan, tokens, opening in zip(plans, found, openings, strict=True)
    ):
        enough += block
        found = table_lengths(TABLES[suite], enough, block)
    raise OptionError(
        what,
        option="--chunk-size",
        value=chunk,
        expected=f"at least {enough}",
        remedy=f"use larger chunks{raw}",
    )


def _holds(plan: Plan, tokens: int, chunk: int, frame: tuple[int, int], opening: int) -> bool:
    before, after = frame
    if plan.pair:
        shared = PAIR_CHUNKS * chunk
        return before + opening < shared and shared + PAIR_TAIL_TOKENS + after <= tokens
    return before + opening + after < tokens


def _whole(option: str, value: object, least: int) -> None:
    if type(value) is not int or not least <= value <= MAX_SAFE_INTEGER:
        raise OptionError(
            "not such a number", option=option, value=value, expected=f"a whole number from {least}"
        )


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
