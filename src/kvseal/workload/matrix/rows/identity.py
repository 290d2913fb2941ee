# SPDX-License-Identifier: Apache-2.0
"""A row for each field of a manifest: a consumer whose own manifest differs in it alone."""

from __future__ import annotations

from kvseal.workload.matrix.case import MP, NONE, PROCESS, Ask, Case
from kvseal.workload.matrix.fields import FIELDS
from kvseal.workload.matrix.rows.words import MISS, ONLY_TEXT

ROWS: tuple[Case, ...] = tuple(
    Case(
        f"field-{path}",
        "identity",
        "SnapKV",
        f"a manifest with another {path}",
        ("local-a",),
        (Ask("local-a", f"field:{path}", MISS),),
        backends=(PROCESS, MP),
        afters=(NONE,),
        elsewhere=ONLY_TEXT,
    )
    for path in FIELDS
)
