# SPDX-License-Identifier: Apache-2.0
"""For how long an artifact lives, and for whom."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, FS, MP, NATIVE, NONE, ORDINARY, Act, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS, PLACE, SEEN

ROWS: tuple[Case, ...] = (
    Case(
        "request-local-own",
        "scope",
        "request-local SnapKV",
        "the same request stream",
        ("local-a",),
        (Ask("local-a", EXACT, HIT),),
    ),
    Case(
        "request-local-other",
        "scope",
        "request-local SnapKV",
        "another request, same transform",
        ("local-a",),
        (Ask("local-a", "artifact:local-a-again", MISS), Ask("local-a", ORDINARY, MISS)),
    ),
    Case(
        "legacy-own",
        "scope",
        "legacy tuple",
        "the same request stream",
        ("legacy-a",),
        (Ask("legacy-a", EXACT, HIT),),
    ),
    Case(
        "legacy-other",
        "scope",
        "legacy tuple",
        "another request, same tuple",
        ("legacy-a",),
        (Ask("legacy-a", "artifact:legacy-a-again", MISS), Ask("legacy-a", ORDINARY, MISS)),
    ),
    Case(
        "lease-ended",
        "scope",
        "request-local SnapKV",
        "its own request stream, after it closed",
        ("local-a",),
        (
            Ask("local-a", EXACT, HIT),
            Act("end-lease", "local-a", SEEN, "deleted"),
            Ask("local-a", EXACT, MISS),
        ),
        backends=(MP, NATIVE),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "request-local-files",
        "scope",
        "request-local and query-scoped SnapKV",
        "whoever lists the L2 store",
        ("local-a", "snapkv-a"),
        (Act("files", "local-a", SEEN, "absent"), Act("files", "snapkv-a", SEEN, "present")),
        backends=(FS,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
)
