# SPDX-License-Identifier: Apache-2.0
"""Baseline against SnapKV, the same prompts in the same order on the same engines.

Each arm starts from a cache that was cleared and counted as empty. In both,
a prompt is prefilled first and asked afterwards, so that both answers decode
from KV that LMCache handed over and differ in nothing but the compaction. In
the SnapKV arm a salt of this run's own keeps the compacted KV away from
ordinary requests, which LMCache alone would not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal.checkers.prompt_checks import first_difference
from kvseal.compaction.witness import decode_reference
from kvseal.drivers.serving import CompactedPrompt, Measured, Serving
from kvseal.process import Progress
from kvseal.records import builders
from kvseal.records.history import HistoryWriter
from kvseal.workload.prompt import Prompt


def compare(
    serving: Serving, prompts: Sequence[Prompt], history: HistoryWriter, *, salt: str, witness: Any
) -> None:
    """Run both arms over `prompts`.

    `witness` is the same model in transformers, float32, or None to go without;
    `salt` begins the cache salts of the SnapKV arm, one a prompt, so that two
    prompts which keep the same first tokens never meet in the cache.
    """
    for prompt in prompts:
        history.append(
            builders.prompt(
                index=prompt.index,
                dataset=prompt.dataset,
                token_ids=prompt.token_ids,
                expected=prompt.expected,
                kind=prompt.kind,
            )
        )
    for arm in ("baseline", "snapkv"):
        before, after = serving.cache.clear()
        history.append(
            builders.cache_cleared(
                before_arm=arm, objects_before=before.objects, objects_after=after.objects
            )
        )
        with Progress(f"{arm} arm") as progress:
            for number, prompt in enumerate(prompts, start=1):
                progress.update(f"prompt {number} of {len(prompts)}")
                if arm == "baseline":
                    _baseline(serving, prompt, history)
                else:
                    _snapkv(
                        serving, prompt, history, salt=f"{salt}-{prompt.index}", witness=witness
                    )


def _baseline(serving: Serving, prompt: Prompt, history: HistoryWriter) -> None:
    cached = serving.prefill(prompt.token_ids)
    measured = serving.ask(prompt.token_ids)
    history.append(_answer("baseline", prompt.index, measured, expected_hit_tokens=cached))


def _snapkv(
    serving: Serving, prompt: Prompt, history: HistoryWriter, *, salt: str, witness: Any
) -> None:
    source = serving.prefill(prompt.token_ids, cache_salt=salt)
    compacted = serving.compact(prompt.token_ids, source_salt=salt, store_salt=salt)
    history.append(
        builders.transform(
            index=prompt.index,
            source_tokens=source,
            tail_tokens=len(compacted.tail_token_ids),
            retained_positions=compacted.compacted.retained_positions.tolist(),
            retained_token_ids=compacted.compacted.token_ids,
            layout=serving.sdk.layout.name,
            transform_seconds=compacted.transform_seconds,
            retrieve_seconds=compacted.retrieve_seconds,
            store_seconds=compacted.store_seconds,
            stored_tokens=compacted.stored_tokens,
            granularity=compacted.compacted.granularity,
        )
    )
    measured = serving.ask(compacted.token_ids, cache_salt=salt)
    history.append(
        _answer("snapkv", prompt.index, measured, expected_hit_tokens=compacted.stored_tokens)
    )
    if witness is not None:
        history.append(_reference(serving, prompt.index, compacted, measured, witness))


def _answer(
    arm: str, index: int, measured: Measured, *, expected_hit_tokens: int
) -> dict[str, Any]:
    completion = measured.completion
    return builders.answer(
        arm=arm,
        index=index,
        prompt_tokens=completion.prompt_tokens,
        output_token_ids=completion.token_ids,
        text=completion.text,
        finish_reason=completion.finish_reason,
        ttft_seconds=completion.ttft_seconds,
        decode_seconds=completion.decode_seconds,
        total_seconds=completion.total_seconds,
        expected_hit_tokens=expected_hit_tokens,
        hit_tokens_vllm=completion.hit_tokens,
        hit_tokens_server=measured.hit_tokens_server,
    )


def _reference(
    serving: Serving, index: int, compacted: CompactedPrompt, measured: Measured, witness: Any
) -> dict[str, Any]:
    decoded = decode_reference(
        witness,
        compacted.compacted.keys,
        compacted.compacted.values,
        compacted.tail_token_ids,
        serving.spec.workload.new_tokens,
        rope=serving.rope,
    )
    first = first_difference(list(decoded.token_ids), measured.completion.token_ids)
    margin = (
        None if first is None or first >= len(decoded.top2_margins) else decoded.top2_margins[first]
    )
    return builders.reference(
        index=index,
        output_token_ids=decoded.token_ids,
        first_difference=first,
        top2_margin=margin,
    )
