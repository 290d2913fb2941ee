# SPDX-License-Identifier: Apache-2.0
"""How an exact variant is found by what its transform would be given."""

from __future__ import annotations

from kvseal.workload.matrix.case import FS, NONE, SERVED, Act, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, NO_ENGINE, PLACE, REFUSED, SEEN

ROWS: tuple[Case, ...] = (
    Case(
        "recipe-found",
        "index",
        "SnapKV, published under its recipe",
        "whoever has the recipe",
        ("snapkv-a",),
        (
            Act("publish", "snapkv-a", SEEN, "1 variant", before_restart=True),
            Ask("snapkv-a", "index", HIT),
        ),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "recipe-of-other-query",
        "index",
        "SnapKV, published under its recipe",
        "the recipe of query B",
        ("snapkv-a",),
        (
            Act("publish", "snapkv-a", SEEN, "1 variant", before_restart=True),
            Act("look-up", "snapkv-a-query-b", SEEN, "0 variants"),
        ),
        backends=SERVED,
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "recipe-of-other-tenant",
        "index",
        "SnapKV of tenant A, published",
        "tenant B with the recipe",
        ("snapkv-a",),
        (
            Act("publish", "snapkv-a", SEEN, "1 variant", before_restart=True),
            Act("look-up-other-tenant", "snapkv-a", SEEN, "0 variants"),
        ),
        backends=SERVED,
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "recipe-forged",
        "index",
        "SnapKV, and a forged entry in the index",
        "whoever has the recipe",
        ("snapkv-a",),
        (
            Act("publish", "snapkv-a", SEEN, "1 variant", before_restart=True),
            Act("forge", "snapkv-a", SEEN, "forged", before_restart=True),
            Ask("snapkv-a", "index", REFUSED),
        ),
        backends=(FS,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "request-local-not-published",
        "index",
        "request-local SnapKV",
        "its own request, publishing it",
        ("local-a",),
        (Act("publish", "local-a", REFUSED),),
        backends=SERVED,
        afters=(NONE,),
        elsewhere=PLACE,
    ),
)
