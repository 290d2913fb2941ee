# SPDX-License-Identifier: Apache-2.0
"""Who may not have it: other tenants, and texts that imitate a name."""

from __future__ import annotations

from kvseal.workload.matrix.case import EXACT, FS, MP, NONE, ORDINARY, SERVED, Ask, Case
from kvseal.workload.matrix.rows.words import HIT, MISS, NO_ENGINE, PLACE, REFUSED

ROWS: tuple[Case, ...] = (
    Case(
        "other-tenant",
        "tenancy",
        "SnapKV of tenant A",
        "tenant B with the exact variant",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, MISS, salt="other"), Ask("snapkv-a", EXACT, HIT)),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "other-tenant-ordinary",
        "tenancy",
        "ordinary KV of tenant A",
        "ordinary request of tenant B",
        ("ordinary-a",),
        (Ask("ordinary-a", ORDINARY, MISS, salt="other"),),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "salt-is-variant",
        "tenancy",
        "request-local SnapKV",
        "ordinary request whose salt is the variant's text",
        # Its variant, and so the tenant, is another one in each cell: vLLM's own prefix
        # cache would serve what the same tenant asked for after another restart.
        ("local-a",),
        (Ask("local-a", ORDINARY, MISS, salt="variant"),),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
    Case(
        "salt-holds-mark",
        "tenancy",
        "SnapKV",
        "ordinary request whose salt holds the mark",
        ("snapkv-a",),
        (Ask("snapkv-a", ORDINARY, REFUSED, salt="mark"),),
        backends=(MP, FS),
        afters=(NONE,),
        elsewhere=PLACE,
    ),
    Case(
        "malformed-variant",
        "tenancy",
        "SnapKV",
        "a text that is no variant",
        ("snapkv-a",),
        (Ask("snapkv-a", "text:q1short", REFUSED), Ask("snapkv-a", EXACT, HIT)),
    ),
    Case(
        "unknown-version",
        "tenancy",
        "SnapKV",
        "a variant of a version that nobody knows",
        ("snapkv-a",),
        (Ask("snapkv-a", f"text:q2{'a' * 32}", REFUSED), Ask("snapkv-a", EXACT, HIT)),
    ),
    Case(
        "scope-not-allowed",
        "tenancy",
        "SnapKV",
        "a variant of a scope that the server does not take",
        ("snapkv-a",),
        (Ask("snapkv-a", f"text:g1{'a' * 32}", REFUSED), Ask("snapkv-a", EXACT, HIT)),
        backends=SERVED,
        elsewhere=NO_ENGINE,
    ),
)
