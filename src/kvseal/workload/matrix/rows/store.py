# SPDX-License-Identifier: Apache-2.0
"""What must never be stored."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, FS, MP, NONE, ORDINARY, PROCESS, Act, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS, ONLY_TEXT, PLACE, REFUSED, SEEN

ROWS: tuple[Case, ...] = (
    *(
        Case(
            f"lying-{lie}",
            "store",
            f"a modifier that lies: {words}",
            "nobody: it is refused before anything is stored",
            ("snapkv-a",),
            (Ask("snapkv-a", EXACT, MISS),),
            refused_stores=(0,),
            lie=lie,
            backends=(PROCESS, MP),
            afters=(NONE,),
            elsewhere=ONLY_TEXT,
        )
        for lie, words in (
            ("positions", "positions that don't increase"),
            ("tokens", "token IDs that are not the source's"),
            ("lengths", "more token IDs than rows"),
            ("numbers", "a NaN among the values"),
        )
    ),
    Case(
        "second-store",
        "store",
        "the same variant stored twice",
        "the exact variant",
        ("snapkv-a", "snapkv-a"),
        (Ask("snapkv-a", EXACT, HIT),),
        refused_stores=(1,),
        backends=(MP, FS),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "name-too-long",
        "store",
        "SnapKV of a tenant whose salt makes file names too long",
        "nobody: it is refused before anything is stored",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, MISS),),
        refused_stores=(0,),
        lie="long-salt",
        backends=(FS,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "damaged-object",
        "store",
        "SnapKV, one bit of each of its files changed afterwards",
        "the exact variant",
        ("snapkv-a",),
        (Act("damage", "snapkv-a", SEEN, "damaged"), Ask("snapkv-a", EXACT, MISS)),
        backends=(FS,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "sdk-stream",
        "store",
        "LMCache's own SDK, with a modifier that returns a tuple",
        "its own stream; an ordinary request; the same variant once more",
        (),
        (
            Act("sdk-update", "legacy-a", SEEN, "request-local"),
            Act("sdk-generate", "legacy-a", SEEN, "its own variant, all of it loaded"),
            Ask("legacy-a", ORDINARY, MISS),
            Act("sdk-update-again", "legacy-a", REFUSED),
            Act("sdk-close", "legacy-a", SEEN, "closed"),
        ),
        backends=(MP,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
)
