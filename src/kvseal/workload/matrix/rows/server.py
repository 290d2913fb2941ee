# SPDX-License-Identifier: Apache-2.0
"""What a server shows of itself."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, FS, MP, NONE, SERVED, Act, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, PLACE, SEEN

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
        "listing",
        "server",
        "SnapKV",
        "whoever lists the cache over HTTP",
        ("snapkv-a",),
        (Act("listing", "snapkv-a", SEEN, "model and variant apart"),),
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
