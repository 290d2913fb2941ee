# SPDX-License-Identifier: Apache-2.0
"""What vLLM and the cache do with several artifacts, and with what is computed on top of one."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, ORDINARY, SERVED, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS, NO_ENGINE

ROWS: tuple[Case, ...] = (
    Case(
        "two-sources-together",
        "engine",
        "sources A and B with identical retained tokens",
        "each asks for its own",
        ("fixed-a", "fixed-b"),
        (Ask("fixed-b", EXACT, HIT), Ask("fixed-a", EXACT, HIT)),
    ),
    Case(
        "two-ratios-together",
        "engine",
        "SnapKV of source A, ratios 0.5 and 0.25",
        "each asks for its own",
        ("snapkv-a", "snapkv-a-quarter"),
        (Ask("snapkv-a-quarter", EXACT, HIT), Ask("snapkv-a", EXACT, HIT)),
    ),
    Case(
        "ordinary-and-variant-together",
        "engine",
        "ordinary KV and SnapKV under the same tokens",
        "ordinary request, then the exact variant",
        ("literal-a", "snapkv-a"),
        (Ask("literal-a", ORDINARY, HIT), Ask("snapkv-a", EXACT, HIT)),
    ),
    Case(
        "ordinary-after-variant",
        "engine",
        "SnapKV, loaded into vLLM",
        "ordinary request for the literal retained tokens",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, HIT), Ask("snapkv-a", ORDINARY, MISS)),
    ),
    Case(
        "other-variant-after-variant",
        "engine",
        "source A, loaded into vLLM",
        "source B with identical retained tokens",
        ("fixed-a",),
        (Ask("fixed-a", EXACT, HIT), Ask("fixed-a", "artifact:fixed-b", MISS)),
    ),
    Case(
        "miss-stores-nothing",
        "engine",
        "nobody",
        "a variant that does not exist, twice; then ordinary",
        (),
        (
            Ask("snapkv-a", EXACT, MISS),
            Ask("snapkv-a", EXACT, MISS),
            Ask("snapkv-a", ORDINARY, MISS),
        ),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "descendant-reused",
        "engine",
        "chunks computed on SnapKV",
        "the same variant, same suffix",
        ("snapkv-a",),
        (
            Ask("snapkv-a", EXACT, HIT, suffix_chunks=2, before_restart=True),
            Ask("snapkv-a", EXACT, HIT, suffix_chunks=2, descendants=2),
        ),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "descendant-ordinary",
        "engine",
        "chunks computed on SnapKV",
        "ordinary request for the literal tokens and the suffix",
        ("snapkv-a",),
        (
            Ask("snapkv-a", EXACT, HIT, suffix_chunks=2, before_restart=True),
            Ask("snapkv-a", ORDINARY, MISS, suffix_chunks=2),
        ),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "chained-own",
        "engine",
        "SnapKV of SnapKV",
        "the exact variant, which binds its parent",
        ("chained-a",),
        (Ask("chained-a", EXACT, HIT), Ask("chained-a", ORDINARY, MISS)),
    ),
    Case(
        "chained-as-parent",
        "engine",
        "SnapKV of SnapKV",
        "the parent's variant for the child's tokens",
        ("chained-a",),
        (Ask("chained-a", "artifact:snapkv-a", MISS),),
    ),
)
