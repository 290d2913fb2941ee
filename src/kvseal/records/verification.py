# SPDX-License-Identifier: Apache-2.0
"""The events of a verification's history.jsonl, each with its builder.

`kvseal verify` asks a control with no cache and then each target the same
probes; this is what it writes down. As in kvseal.records.events an event says
what happened and was seen, holds no opinion, and did not happen where it is
missing. The table is published as schemas/verification-history.v1.json.
Builders are called by the driver; kvseal.checkers.verification reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.canonical import token_ids_sha256
from kvseal.records.fields import COUNT, COUNTS, OBJECT, SHA256, TEXT, EventTable, one_of, or_null
from kvseal.spec.contracts import CONTROL, TARGETS

KINDS = ("control", "cold", "reuse")

_TARGET = one_of(CONTROL, *TARGETS)
_RANKED = {
    "type": "array",
    "minItems": 2,
    "maxItems": 2,
    "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}},
}
_ANSWER_KEY = {"target": _TARGET, "probe": TEXT, "kind": one_of(*KINDS), "repetition": COUNT}

EVENTS: dict[str, dict[str, dict[str, Any]]] = {
    "verification_started": {
        "request": OBJECT,
        "contract": OBJECT,
        "kvseal_version": TEXT,
        "host": OBJECT,
    },
    "manifest": {
        "probes": {"type": "array", "items": OBJECT},
        "generations_planned": OBJECT,
        "geometry": OBJECT,
        "sampling": OBJECT,
    },
    "environment": {"details": OBJECT},
    "target_started": {"target": _TARGET, "engine": OBJECT},
    "answer": {
        **_ANSWER_KEY,
        "prompt_token_ids_sha256": SHA256,
        "token_ids": COUNTS,
        "cached_tokens": or_null(COUNT),
        "server_hit_tokens": or_null(COUNT),
        "finish_reason": or_null(TEXT),
        "top2": {"type": "array", "items": or_null(_RANKED)},
    },
    "answer_missing": {**_ANSWER_KEY, "reason": TEXT},
    "probe_completed": {"target": _TARGET, "probe": TEXT},
    "engine_warning": {"target": _TARGET, "probe": or_null(TEXT), "line": TEXT},
    "disqualified": {"target": _TARGET, "probe": or_null(TEXT), "reason": TEXT},
    "target_finished": {
        "target": _TARGET,
        "status": {"type": ["integer", "null"]},
        "log": TEXT,
    },
    "error": {"target": or_null(_TARGET), "where": TEXT, "message": TEXT},
    "interrupted": {"signal": TEXT},
    "verification_finished": {},
}
"""Event name → its required fields, each with the JSON Schema of its value. No others."""

TABLE = EventTable(
    "kvseal.verification-history.v1", "One line of a verification's history.jsonl", EVENTS
)
"""For HistoryWriter, read_history and line_schema."""


def verification_started(
    *,
    request: Mapping[str, Any],
    contract: Mapping[str, Any],
    kvseal_version: str,
    host: Mapping[str, Any],
) -> dict[str, Any]:
    """What was asked for, every value as it took effect, under which evidence contract."""
    return {
        "event": "verification_started",
        "request": dict(request),
        "contract": dict(contract),
        "kvseal_version": kvseal_version,
        "host": dict(host),
    }


def manifest(
    *,
    probes: Sequence[Mapping[str, Any]],
    generations_planned: Mapping[str, int],
    geometry: Mapping[str, int],
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """The probes as JSON, in the order in which they will be asked, and the answers planned.

    `generations_planned` has a count for the control, one for each target and `total`;
    `geometry` is chunk_tokens, block_tokens and max_model_len.
    """
    return {
        "event": "manifest",
        "probes": [dict(probe) for probe in probes],
        "generations_planned": dict(generations_planned),
        "geometry": dict(geometry),
        "sampling": dict(sampling),
    }


def environment(*, details: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, identity of model and tokenizer, CPU or GPU."""
    return {"event": "environment", "details": dict(details)}


def target_started(*, target: str, engine: Mapping[str, Any]) -> dict[str, Any]:
    """The engine of `target` answers; `engine` is its configuration as it reports it itself."""
    return {"event": "target_started", "target": target, "engine": dict(engine)}


def answer(
    *,
    target: str,
    probe: str,
    kind: str,
    repetition: int,
    prompt_token_ids: Sequence[int],
    token_ids: Sequence[int],
    cached_tokens: int | None,
    server_hit_tokens: int | None,
    finish_reason: str | None,
    top2: Sequence[Sequence[Sequence[float]] | None] = (),
) -> dict[str, Any]:
    """One generation. No time is kept: a verification claims nothing about speed.

    `prompt_token_ids` are those that the engine says it was given; their digest
    is recorded. `cached_tokens` is the engine's count, `server_hit_tokens` that
    of a cache server; None where nobody counted. `top2` has for each generated
    token the two likeliest as (token ID, log-probability), the likelier first,
    None for a token without; it is empty where they were not asked for.
    """
    return {
        "event": "answer",
        "target": target,
        "probe": probe,
        "kind": kind,
        "repetition": repetition,
        "prompt_token_ids_sha256": token_ids_sha256(list(prompt_token_ids)),
        "token_ids": list(token_ids),
        "cached_tokens": cached_tokens,
        "server_hit_tokens": server_hit_tokens,
        "finish_reason": finish_reason,
        "top2": [None if pair is None else [list(entry) for entry in pair] for pair in top2],
    }


def answer_missing(
    *, target: str, probe: str, kind: str, repetition: int, reason: str
) -> dict[str, Any]:
    """This answer was asked for and did not come."""
    return {
        "event": "answer_missing",
        "target": target,
        "probe": probe,
        "kind": kind,
        "repetition": repetition,
        "reason": reason,
    }


def probe_completed(*, target: str, probe: str) -> dict[str, Any]:
    """All that was to be asked of `target` for this probe was asked. The control has it too."""
    return {"event": "probe_completed", "target": target, "probe": probe}


def engine_warning(*, target: str, line: str, probe: str | None = None) -> dict[str, Any]:
    """A warning or error about the cache, as it stands in the engine's log."""
    return {"event": "engine_warning", "target": target, "probe": probe, "line": line}


def disqualified(*, target: str, reason: str, probe: str | None = None) -> dict[str, Any]:
    """What was seen is not what the evidence contract asks of this target, or of this probe."""
    return {"event": "disqualified", "target": target, "probe": probe, "reason": reason}


def target_finished(*, target: str, status: int | None, log: str) -> dict[str, Any]:
    """The process of `target` ended; `status` is its exit status, None where it is not known."""
    return {"event": "target_finished", "target": target, "status": status, "log": log}


def error(*, where: str, message: str, target: str | None = None) -> dict[str, Any]:
    """Something failed at stage `where`, of this target or of the whole run."""
    return {"event": "error", "target": target, "where": where, "message": message}


def interrupted(*, signal: str) -> dict[str, Any]:
    """The run was told to stop by `signal`, such as SIGINT."""
    return {"event": "interrupted", "signal": signal}


def verification_finished() -> dict[str, Any]:
    """Everything that was to be done was done. Always the last event of a whole run."""
    return {"event": "verification_finished"}
