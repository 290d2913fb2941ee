# SPDX-License-Identifier: Apache-2.0
"""The events of history.jsonl as data: which there are and what each must hold.

An event says that something happened and what was seen; a missing event means
it did not happen. No event holds an opinion: judgement is kvseal.checkers'.
Reader and writer hold every line to this table, which is published as
schemas/history.v1.json; kvseal.records.builders makes the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ARMS = ("baseline", "snapkv")
DRIVERS = ("compare", "unsafe-hit")
"""What a history can be of, by the verb that writes it."""

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_SECONDS: dict[str, Any] = {"type": "number", "minimum": 0}
_TEXT: dict[str, Any] = {"type": "string"}
_SHA256: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_OBJECT: dict[str, Any] = {"type": "object"}
_COUNTS: dict[str, Any] = {"type": "array", "items": _COUNT}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_ARM: dict[str, Any] = {"type": "string", "enum": list(ARMS)}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


EVENTS: dict[str, dict[str, dict[str, Any]]] = {
    "run_started": {
        "driver": {"type": "string", "enum": list(DRIVERS)},
        "spec_sha256": _SHA256,
        "host": _OBJECT,
    },
    "environment": {
        "kvseal_version": _TEXT,
        "vllm_version": _or_null(_TEXT),
        "lmcache_version": _or_null(_TEXT),
        "torch_version": _or_null(_TEXT),
        "lmcache_revision": _or_null(_TEXT),
        "model_revision": _or_null(_TEXT),
        "details": _OBJECT,
    },
    "engines_started": {"vllm": _OBJECT, "lmcache": _OBJECT},
    "cache_cleared": {"before_arm": _ARM, "objects_before": _COUNT, "objects_after": _COUNT},
    "prompt": {
        "index": _COUNT,
        "dataset": _TEXT,
        "prompt_token_ids_sha256": _SHA256,
        "prompt_tokens": _COUNT,
        "expected": _TEXTS,
        "question_kind": _TEXT,
    },
    "transform": {
        "index": _COUNT,
        "source_tokens": _COUNT,
        "retained_tokens": _COUNT,
        "tail_tokens": _COUNT,
        "retained_positions": _COUNTS,
        "retained_positions_sha256": _SHA256,
        "retained_token_ids_sha256": _SHA256,
        "layout": _TEXT,
        "granularity": _TEXT,
        "transform_seconds": _SECONDS,
        "retrieve_seconds": _SECONDS,
        "store_seconds": _SECONDS,
        "stored_tokens": _COUNT,
    },
    "answer": {
        "arm": _ARM,
        "index": _COUNT,
        "prompt_tokens": _COUNT,
        "output_token_ids": _COUNTS,
        "text": _TEXT,
        "finish_reason": _or_null(_TEXT),
        "ttft_seconds": _SECONDS,
        "decode_seconds": _SECONDS,
        "total_seconds": _SECONDS,
        "expected_hit_tokens": _COUNT,
        "hit_tokens_vllm": _or_null(_COUNT),
        "hit_tokens_server": _or_null(_COUNT),
    },
    "reference": {
        "index": _COUNT,
        "output_token_ids": _COUNTS,
        "first_difference": _or_null(_COUNT),
        "top2_margin": _or_null(_SECONDS),
    },
    "literal_prompt": {
        "token_ids": _COUNTS,
        "source_tokens": _COUNT,
        "compacted_tokens": _COUNT,
        "text": _TEXT,
    },
    "literal_answer": {
        "cache": {"type": "string", "enum": ["compacted", "empty"]},
        "output_token_ids": _COUNTS,
        "text": _TEXT,
        "hit_tokens_vllm": _or_null(_COUNT),
        "hit_tokens_server": _or_null(_COUNT),
    },
    "error": {"where": _TEXT, "message": _TEXT},
    "interrupted": {"signal": _TEXT},
    "run_finished": {},
}
"""Event name → its required fields, each with the JSON Schema of its value. No others."""

_TYPES: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """True when `value` is what a field schema of EVENTS asks for.

    Knows only the keywords used there, so the node needs no JSON Schema package;
    a test holds it to the jsonschema package on the published file.
    """
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_TYPES[name](value) for name in types):
        return False
    if "enum" in schema:
        return value in schema["enum"]
    if "pattern" in schema and value is not None:
        return len(value) == 64 and all(digit in "0123456789abcdef" for digit in value)
    if "minimum" in schema and value is not None:
        return bool(value >= schema["minimum"])
    if "items" in schema:
        return all(fits(item, schema["items"]) for item in value)
    return True
