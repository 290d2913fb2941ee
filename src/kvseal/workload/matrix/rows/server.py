# SPDX-License-Identifier: Apache-2.0
"""What a server shows of itself."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, FS, MP, NONE, ORDINARY, SERVED, Act, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS, PLACE, REFUSED, SEEN

ROWS: tuple[Case, ...] = (
    Case(
        "capability",
        "server",
        "the server",
        "whoever asks what it can do",
        (),
        (Act("capability", "snapkv-a", SEEN, "transform_identity_v1"),),
        backends=SERVED,
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "lookup-log",
        "server",
        "SnapKV",
        "whoever reads the log of lookups",
        ("snapkv-a",),
        (
            Ask("snapkv-a", EXACT, HIT),
            Act("lookup-log", "snapkv-a", SEEN, "model and variant apart"),
        ),
        backends=(MP,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "events",
        "server",
        "SnapKV, and chunks computed on it",
        "whoever reads what a coordinator is told",
        # Not one that keeps the tokens of local-a: who was served could not be told then.
        ("snapkv-a-quarter", "local-a"),
        (
            Ask("snapkv-a", ORDINARY, MISS),
            Ask("snapkv-a-quarter", EXACT, HIT, suffix_chunks=2),
            Act("events", "snapkv-a-quarter", SEEN, "tokens of ordinary KV alone"),
        ),
        backends=(MP,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "forged-key",
        "server",
        "SnapKV",
        "whoever sends keys with a malformed mark, or a salt that holds one",
        ("snapkv-a",),
        (
            Act("forged-name", "snapkv-a", REFUSED),
            Act("forged-salt", "snapkv-a", REFUSED),
            Act("foreign-name", "snapkv-a", SEEN, "0 deleted"),
        ),
        backends=(MP,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "forbidden-scope",
        "server",
        "SnapKV",
        "whoever asks the server itself for a scope that it does not take",
        ("snapkv-a",),
        (Act("forbidden-scope", "snapkv-a", REFUSED),),
        backends=(FS,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "metrics",
        "server",
        "SnapKV",
        "whoever reads the metrics",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, HIT), Act("metrics", "snapkv-a", SEEN, "no mark")),
        backends=(MP,),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
)
