# SPDX-License-Identifier: Apache-2.0
"""The rows that the mission began with."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, ORDINARY, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS

ROWS: tuple[Case, ...] = (
    Case(
        "ordinary-same-prefix",
        "seed",
        "ordinary KV",
        "ordinary request, same prefix",
        ("ordinary-a",),
        (Ask("ordinary-a", ORDINARY, HIT),),
    ),
    Case(
        "literal-retained-tokens",
        "seed",
        "SnapKV",
        "ordinary request for the literal retained tokens",
        ("snapkv-a",),
        (Ask("snapkv-a", ORDINARY, MISS),),
    ),
    Case(
        "same-transform",
        "seed",
        "SnapKV, query A",
        "SnapKV, query A, identical manifest",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, HIT), Ask("snapkv-a", EXACT, HIT)),
    ),
    Case(
        "other-query",
        "seed",
        "SnapKV, query A",
        "SnapKV, query B",
        ("snapkv-a",),
        (
            Ask("snapkv-a-query-b", EXACT, MISS),
            Ask("snapkv-a", "artifact:snapkv-a-query-b", MISS),
        ),
    ),
    Case(
        "other-source",
        "seed",
        "SnapKV, source A",
        "source B with identical retained tokens",
        ("fixed-a",),
        (Ask("fixed-a", "artifact:fixed-b", MISS),),
    ),
    Case(
        "other-ratio",
        "seed",
        "SnapKV, ratio 0.5",
        "SnapKV, ratio 0.25",
        ("snapkv-a",),
        (
            Ask("snapkv-a-quarter", EXACT, MISS),
            Ask("snapkv-a", "artifact:snapkv-a-quarter", MISS),
        ),
    ),
)
