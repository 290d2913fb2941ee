# SPDX-License-Identifier: Apache-2.0
"""One builder for each event, so that a driver can't misspell a field or leave one out.

Counts and digests that follow from a list are made here from the list. Nothing
is written: pass the event to HistoryWriter.append. Called by the drivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.canonical import token_ids_sha256


def run_started(
    *, spec_sha256: str, host: Mapping[str, Any], driver: str = "compare"
) -> dict[str, Any]:
    """The run of `driver` began on `host` for the spec of this digest (RunSpec.sha256)."""
    return {
        "event": "run_started",
        "driver": driver,
        "spec_sha256": spec_sha256,
        "host": dict(host),
    }


def environment(
    *,
    kvseal_version: str,
    vllm_version: str | None,
    lmcache_version: str | None,
    torch_version: str | None,
    lmcache_revision: str | None,
    model_revision: str | None,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """What the run stands on; None where it is not known. `details`: environment.json."""
    return {
        "event": "environment",
        "kvseal_version": kvseal_version,
        "vllm_version": vllm_version,
        "lmcache_version": lmcache_version,
        "torch_version": torch_version,
        "lmcache_revision": lmcache_revision,
        "model_revision": model_revision,
        "details": dict(details),
    }


def engines_started(*, vllm: Mapping[str, Any], lmcache: Mapping[str, Any]) -> dict[str, Any]:
    """Both engines answer; each with its command line and what it reported of itself."""
    return {"event": "engines_started", "vllm": dict(vllm), "lmcache": dict(lmcache)}


def cache_cleared(*, before_arm: str, objects_before: int, objects_after: int) -> dict[str, Any]:
    """The cache was cleared for `before_arm`; counts are the server's own, before and after."""
    return {
        "event": "cache_cleared",
        "before_arm": before_arm,
        "objects_before": objects_before,
        "objects_after": objects_after,
    }


def prompt(
    *, index: int, dataset: str, token_ids: Sequence[int], expected: Sequence[str], kind: str
) -> dict[str, Any]:
    """Prompt `index` will be asked; its digest and length are taken from `token_ids`."""
    return {
        "event": "prompt",
        "index": index,
        "dataset": dataset,
        "prompt_token_ids_sha256": token_ids_sha256(list(token_ids)),
        "prompt_tokens": len(token_ids),
        "expected": list(expected),
        "question_kind": kind,
    }


def transform(
    *,
    index: int,
    source_tokens: int,
    tail_tokens: int,
    retained_positions: Sequence[int],
    retained_token_ids: Sequence[int],
    layout: str,
    transform_seconds: float,
    retrieve_seconds: float,
    store_seconds: float,
    stored_tokens: int,
    granularity: str = "all",
) -> dict[str, Any]:
    """KV of `source_tokens` tokens was compacted and stored; the prompt's tail was not touched.

    `retained_positions` are positions in the source; `stored_tokens` is what
    the server says it stored. Digests and the retained count are made here.
    """
    return {
        "event": "transform",
        "index": index,
        "source_tokens": source_tokens,
        "retained_tokens": len(retained_positions),
        "tail_tokens": tail_tokens,
        "retained_positions": list(retained_positions),
        "retained_positions_sha256": token_ids_sha256(list(retained_positions)),
        "retained_token_ids_sha256": token_ids_sha256(list(retained_token_ids)),
        "layout": layout,
        "granularity": granularity,
        "transform_seconds": transform_seconds,
        "retrieve_seconds": retrieve_seconds,
        "store_seconds": store_seconds,
        "stored_tokens": stored_tokens,
    }


def answer(
    *,
    arm: str,
    index: int,
    prompt_tokens: int,
    output_token_ids: Sequence[int],
    text: str,
    finish_reason: str | None,
    ttft_seconds: float,
    decode_seconds: float,
    total_seconds: float,
    expected_hit_tokens: int,
    hit_tokens_vllm: int | None,
    hit_tokens_server: int | None,
) -> dict[str, Any]:
    """One answer of `arm`; a hit count is None where that witness gave none."""
    return {
        "event": "answer",
        "arm": arm,
        "index": index,
        "prompt_tokens": prompt_tokens,
        "output_token_ids": list(output_token_ids),
        "text": text,
        "finish_reason": finish_reason,
        "ttft_seconds": ttft_seconds,
        "decode_seconds": decode_seconds,
        "total_seconds": total_seconds,
        "expected_hit_tokens": expected_hit_tokens,
        "hit_tokens_vllm": hit_tokens_vllm,
        "hit_tokens_server": hit_tokens_server,
    }


def reference(
    *,
    index: int,
    output_token_ids: Sequence[int],
    first_difference: int | None,
    top2_margin: float | None,
) -> dict[str, Any]:
    """transformers' answer from the same compacted cache.

    `first_difference` is the index of the first output token that is not the
    SnapKV answer's, `top2_margin` the logit distance of the two best there.
    """
    return {
        "event": "reference",
        "index": index,
        "output_token_ids": list(output_token_ids),
        "first_difference": first_difference,
        "top2_margin": top2_margin,
    }


def literal_prompt(
    *, token_ids: Sequence[int], source_tokens: int, compacted_tokens: int, text: str
) -> dict[str, Any]:
    """An ordinary prompt of `token_ids`: the kept tokens of a compacted entry, and the tail.

    `source_tokens` counts the prompt that the entry was made from,
    `compacted_tokens` those of the entry, `text` is `token_ids` decoded.
    """
    return {
        "event": "literal_prompt",
        "token_ids": list(token_ids),
        "source_tokens": source_tokens,
        "compacted_tokens": compacted_tokens,
        "text": text,
    }


def literal_answer(
    *,
    cache: str,
    output_token_ids: Sequence[int],
    text: str,
    hit_tokens_vllm: int | None,
    hit_tokens_server: int | None,
) -> dict[str, Any]:
    """The literal prompt's answer while the cache held the compacted entry, or was empty."""
    return {
        "event": "literal_answer",
        "cache": cache,
        "output_token_ids": list(output_token_ids),
        "text": text,
        "hit_tokens_vllm": hit_tokens_vllm,
        "hit_tokens_server": hit_tokens_server,
    }


def error(*, where: str, message: str) -> dict[str, Any]:
    """Something failed at stage `where`; the run went no further."""
    return {"event": "error", "where": where, "message": message}


def interrupted(*, signal: str) -> dict[str, Any]:
    """The run was told to stop by `signal`, such as SIGINT."""
    return {"event": "interrupted", "signal": signal}


def run_finished() -> dict[str, Any]:
    """Everything that was to be done was done. Always the last event of a whole run."""
    return {"event": "run_finished"}
