# SPDX-License-Identifier: Apache-2.0
"""The events of history.jsonl as data: which there are and what each must hold.

An event says that something happened and what was seen; a missing event means
it did not happen. No event holds an opinion: judgement is kvseal.checkers'.
Reader and writer hold every line to this table, which is published as
schemas/history.v1.json; kvseal.records.builders makes the events.
"""

from __future__ import annotations

from typing import Any

from kvseal.records.fields import (
    COUNT,
    COUNTS,
    OBJECT,
    SECONDS,
    SHA256,
    TEXT,
    TEXTS,
    EventTable,
    one_of,
    or_null,
)

ARMS = ("baseline", "snapkv")
DRIVERS = ("compare", "unsafe-hit")
"""What a history can be of, by the verb that writes it."""

_ARM = one_of(*ARMS)


EVENTS: dict[str, dict[str, dict[str, Any]]] = {
    "run_started": {
        "driver": one_of(*DRIVERS),
        "spec_sha256": SHA256,
        "host": OBJECT,
    },
    "environment": {
        "kvseal_version": TEXT,
        "vllm_version": or_null(TEXT),
        "lmcache_version": or_null(TEXT),
        "torch_version": or_null(TEXT),
        "lmcache_revision": or_null(TEXT),
        "model_revision": or_null(TEXT),
        "details": OBJECT,
    },
    "engines_started": {"vllm": OBJECT, "lmcache": OBJECT},
    "cache_cleared": {"before_arm": _ARM, "objects_before": COUNT, "objects_after": COUNT},
    "prompt": {
        "index": COUNT,
        "dataset": TEXT,
        "prompt_token_ids_sha256": SHA256,
        "prompt_tokens": COUNT,
        "expected": TEXTS,
        "question_kind": TEXT,
    },
    "transform": {
        "index": COUNT,
        "source_tokens": COUNT,
        "retained_tokens": COUNT,
        "tail_tokens": COUNT,
        "retained_positions": COUNTS,
        "retained_positions_sha256": SHA256,
        "retained_token_ids_sha256": SHA256,
        "layout": TEXT,
        "granularity": TEXT,
        "transform_seconds": SECONDS,
        "retrieve_seconds": SECONDS,
        "store_seconds": SECONDS,
        "stored_tokens": COUNT,
    },
    "answer": {
        "arm": _ARM,
        "index": COUNT,
        "prompt_tokens": COUNT,
        "output_token_ids": COUNTS,
        "text": TEXT,
        "finish_reason": or_null(TEXT),
        "ttft_seconds": SECONDS,
        "decode_seconds": SECONDS,
        "total_seconds": SECONDS,
        "expected_hit_tokens": COUNT,
        "hit_tokens_vllm": or_null(COUNT),
        "hit_tokens_server": or_null(COUNT),
    },
    "reference": {
        "index": COUNT,
        "output_token_ids": COUNTS,
        "first_difference": or_null(COUNT),
        "top2_margin": or_null(SECONDS),
    },
    "literal_prompt": {
        "token_ids": COUNTS,
        "source_tokens": COUNT,
        "compacted_tokens": COUNT,
        "text": TEXT,
    },
    "literal_answer": {
        "cache": one_of("compacted", "empty"),
        "output_token_ids": COUNTS,
        "text": TEXT,
        "hit_tokens_vllm": or_null(COUNT),
        "hit_tokens_server": or_null(COUNT),
    },
    "error": {"where": TEXT, "message": TEXT},
    "interrupted": {"signal": TEXT},
    "run_finished": {},
}
"""Event name → its required fields, each with the JSON Schema of its value. No others."""

TABLE = EventTable("kvseal.history.v1", "One line of history.jsonl", EVENTS)
"""The table as reader, writer and published schema take it."""
