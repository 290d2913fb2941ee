# SPDX-License-Identifier: Apache-2.0
"""The events of a matrix run's history.jsonl as data: which there are and what each must hold.

`kvseal matrix` stores artifacts, restarts engines and asks; this is what it
writes down. As in kvseal.records.events an event says what happened and was
seen, holds no opinion, and did not happen where it is missing. The table is
published as schemas/matrix-history.v1.json; kvseal.records.matrix_builders
makes the events, kvseal.checkers.matrix reads them.
"""

from __future__ import annotations

from typing import Any

from kvseal.records.events import EVENTS as RUN_EVENTS
from kvseal.records.fields import (
    COUNT,
    COUNTS,
    OBJECT,
    SECONDS,
    SHA256,
    TEXT,
    EventTable,
    one_of,
    or_null,
)
from kvseal.spec.options import BACKENDS

DRIVER = "matrix"
AFTERS = ("none", "engine", "server", "both")
RESTARTS = AFTERS[1:]
KINDS = ("ordinary", "snapkv", "legacy", "chained")
ENGINES = ("main", "control", "plain")
"""The engine under test, the one without any cache, and the second one of the mixed part."""
MIXED_ENGINES = ("plain", "snapkv")
MIXED_REQUIRED = ("hit", "miss", "any")

_PLACE = {"case": TEXT, "backend": one_of(*BACKENDS), "after": one_of(*AFTERS)}
_PROMPT = {"prompt_sha256": SHA256, "prompt_tokens": COUNT}

EVENTS: dict[str, dict[str, dict[str, Any]]] = {
    "run_started": {**RUN_EVENTS["run_started"], "driver": one_of(DRIVER)},
    "environment": RUN_EVENTS["environment"],
    "engines_started": {
        # The control belongs to no backend, so these two are free.
        "backend": TEXT,
        "after": TEXT,
        "engine": one_of(*ENGINES),
        "vllm": OBJECT,
        "lmcache": OBJECT,
    },
    "artifact": {
        "name": TEXT,
        "kind": one_of(*KINDS),
        "token_ids_sha256": SHA256,
        "tokens": COUNT,
        "source_tokens": COUNT,
        "variant": TEXT,
        "manifest": or_null(OBJECT),
        "manifest_sha256": or_null(SHA256),
        "payload_sha256": SHA256,
    },
    "control": {**_PROMPT, "output_token_ids": COUNTS, "text": TEXT},
    "witness": {
        "artifact": TEXT,
        "prompt_sha256": SHA256,
        "output_token_ids": COUNTS,
        "top2_margin": or_null(SECONDS),
    },
    "cell": {**_PLACE, "cache_salt": TEXT},
    "not_applicable": {**_PLACE, "reason": TEXT},
    "stored": {
        **_PLACE,
        "artifact": TEXT,
        "variant": TEXT,
        "cache_salt": TEXT,
        "tokens": COUNT,
        "refusal": or_null(TEXT),
    },
    "asked": {
        **_PLACE,
        "step": COUNT,
        "artifact": TEXT,
        **_PROMPT,
        "artifact_tokens": COUNT,
        "variant": TEXT,
        "cache_salt": TEXT,
        "refusal": or_null(TEXT),
        "output_token_ids": or_null(COUNTS),
        "payload_sha256": or_null(SHA256),
        "hit_tokens_vllm": or_null(COUNT),
        "hit_tokens_server": or_null(COUNT),
    },
    "observed": {**_PLACE, "step": COUNT, "what": TEXT, "value": TEXT},
    "emptied": {"backend": one_of(*BACKENDS), "objects_before": COUNT, "objects_after": COUNT},
    "backend_unusable": {"backend": one_of(*BACKENDS), "message": TEXT, "remedy": TEXT},
    "restarted": {"backend": one_of(*BACKENDS), "what": one_of(*RESTARTS)},
    "mixed": {
        "index": COUNT,
        "engine": one_of(*MIXED_ENGINES),
        "kind": TEXT,
        "artifact": TEXT,
        "required": one_of(*MIXED_REQUIRED),
        **_PROMPT,
        "artifact_tokens": COUNT,
        "variant": TEXT,
        "cache_salt": TEXT,
        "output_token_ids": COUNTS,
        "hit_tokens_vllm": or_null(COUNT),
    },
    "error": RUN_EVENTS["error"],
    "interrupted": RUN_EVENTS["interrupted"],
    "run_finished": RUN_EVENTS["run_finished"],
}
"""Event name → its required fields, each with the JSON Schema of its value. No others."""

TABLE = EventTable("kvseal.matrix-history.v1", "One line of a matrix run's history.jsonl", EVENTS)
"""For HistoryWriter, read_history and line_schema."""
