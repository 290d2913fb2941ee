# SPDX-License-Identifier: Apache-2.0
"""Does each answer rest on the KV it claims? Hits, the compaction, the reference witness.

Hits are taken from two witnesses, the LMCache server and vLLM; both must say
exactly what had to happen. Equality of token IDs with transformers decoding
from the same compacted cache shows that what was stored is what was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kvseal.canonical import token_ids_sha256
from kvseal.checkers.answers import RULES
from kvseal.checkers.evidence import Evidence
from kvseal.checkers.reasons import Reason, reason
from kvseal.records.events import ARMS
from kvseal.records.history import Event
from kvseal.spec.runspec import RunSpec

NEAR_TIE_MARGINS = {"float32": 1e-3, "float16": 0.025, "bfloat16": 0.25}
"""Logit distance under which an engine of this dtype and a float32 witness may order two
tokens differently. Source: the largest distances seen on true entries, 0.0032 in float16 and
0.157 in bfloat16 (docs/evidence/h200), with room above them; a few 1e-4 in float32."""

WITNESSES = {"hit_tokens_server": "the LMCache server", "hit_tokens_vllm": "vLLM"}


def check_prompt(spec: RunSpec, evidence: Evidence, index: int) -> Iterator[Reason]:
    """Yield what is wrong with prompt `index`, which has one prompt event."""
    prompt = evidence.prompts[index]
    if prompt["question_kind"] not in RULES:
        yield reason("prompt.kind_unknown", index=index, kind=prompt["question_kind"])
    transform = evidence.transforms.get(index)
    if transform is None:
        yield reason("transform.missing", index=index, arm="snapkv")
    else:
        yield from _transform(spec, evidence, prompt, transform)
    for arm in ARMS:
        answer = evidence.answers.get((arm, index))
        if answer is None:
            yield reason(f"{arm}.answer_missing", index=index, arm=arm)
        else:
            yield from _answer(spec, prompt, transform, answer)
    if spec.snapkv.reference:
        yield from _reference(spec, evidence, index)


def _transform(
    spec: RunSpec, evidence: Evidence, prompt: Event, transform: Event
) -> Iterator[Reason]:
    index, positions = transform["index"], transform["retained_positions"]
    source, retained = transform["source_tokens"], transform["retained_tokens"]
    clear, answer = evidence.clears.get("snapkv"), evidence.answers.get(("snapkv", index))
    if (clear and transform.seq < clear.seq) or (answer and answer.seq < transform.seq):
        yield reason("transform.out_of_order", index=index, arm="snapkv")
    if source + transform["tail_tokens"] != prompt["prompt_tokens"]:
        yield reason(
            "transform.lengths",
            index=index,
            arm="snapkv",
            source=source,
            tail=transform["tail_tokens"],
            prompt=prompt["prompt_tokens"],
        )
    if transform["stored_tokens"] != retained:
        yield reason(
            "transform.store_short",
            index=index,
            arm="snapkv",
            stored=transform["stored_tokens"],
            retained=retained,
        )
    increasing = all(left < right for left, right in pairwise(positions))
    if not (positions and increasing and positions[-1] < source and len(positions) == retained):
        yield reason("transform.positions", index=index, arm="snapkv", source=source)
        return
    if token_ids_sha256(list(positions)) != transform["retained_positions_sha256"]:
        yield reason("transform.digest", index=index, arm="snapkv")
    window = spec.snapkv.window_tokens
    dropped = set(range(max(0, source - window), source)) - set(positions)
    if dropped:
        yield reason(
            "transform.window_dropped",
            index=index,
            arm="snapkv",
            window=window,
            position=min(dropped),
        )
    wanted = source * (100 - spec.snapkv.drop_percent) / 100
    if abs(retained - wanted) > spec.lmcache.chunk_size_tokens:
        yield reason(
            "transform.retained_share",
            index=index,
            arm="snapkv",
            retained=retained,
            source=source,
            wanted=round(wanted),
        )


def _answer(
    spec: RunSpec, prompt: Event, transform: Event | None, answer: Event
) -> Iterator[Reason]:
    arm, index, expected = answer["arm"], answer["index"], answer["expected_hit_tokens"]
    if not answer["output_token_ids"]:
        yield reason(f"{arm}.answer_empty", index=index, arm=arm)
    if arm == "baseline":
        sent = prompt["prompt_tokens"]
        # A cold baseline computes everything; a warm one takes every whole chunk,
        # less the prompt's last token, which vLLM always computes itself.
        chunk = spec.lmcache.chunk_size_tokens
        right = {0, (sent - 1) // chunk * chunk}
    elif transform is None:
        return
    else:
        sent = transform["retained_tokens"] + transform["tail_tokens"]
        right = {transform["retained_tokens"]}
    if answer["prompt_tokens"] != sent:
        yield reason(
            f"{arm}.prompt_length", index=index, arm=arm, seen=answer["prompt_tokens"], sent=sent
        )
    if expected not in right:
        yield reason(
            f"{arm}.hit_expectation",
            index=index,
            arm=arm,
            expected=expected,
            right=" or ".join(map(str, sorted(right))),
        )
    for field, witness in WITNESSES.items():
        seen = answer[field]
        code = (
            "hit_unknown"
            if seen is None
            else "hit_missing"
            if seen == 0 and expected
            else "hit_differs"
        )
        if seen != expected:
            yield reason(
                f"{arm}.{code}",
                index=index,
                arm=arm,
                witness=witness,
                seen=seen,
                expected=expected,
            )


def _reference(spec: RunSpec, evidence: Evidence, index: int) -> Iterator[Reason]:
    reference, answer = evidence.references.get(index), evidence.answers.get(("snapkv", index))
    if reference is None:
        yield reason("reference.missing", index=index, arm="snapkv")
        return
    if answer is None:
        return
    theirs, ours = reference["output_token_ids"], answer["output_token_ids"]
    found = first_difference(theirs, ours)
    if reference["first_difference"] != found:
        yield reason(
            "reference.contradicts",
            index=index,
            arm="snapkv",
            recorded=reference["first_difference"],
            found=found,
        )
    if found is None:
        return
    margin = reference["top2_margin"]
    if found >= min(len(theirs), len(ours)):
        code = "reference.incomplete"
    elif margin is not None and margin < NEAR_TIE_MARGINS[spec.vllm.dtype]:
        code = "reference.near_tie"
    else:
        code = "reference.differs"
    yield reason(
        code,
        index=index,
        arm="snapkv",
        position=found,
        dtype=spec.vllm.dtype,
        margin="an unknown distance" if margin is None else f"{margin:.3g}",
        reference=len(theirs),
        answer=len(ours),
    )


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Return the first index at which the lists are not the same, None when equal.

    Where one is the beginning of the other, that is the length of the shorter.
    """
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))
