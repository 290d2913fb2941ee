# SPDX-License-Identifier: Apache-2.0
"""The table: every case of the matrix, and the artifacts that its cases are about.

The group `seed` are the rows that the mission began with. `identity` has a row
for each field of a manifest, `engine` what vLLM does on top of transformed KV,
`tenancy` who may not imitate a name, `scope` how long and for whom an artifact
lives, `index` how an exact variant is found, `store` what must never be stored,
`server` what a server shows of itself. Called by the driver, the checker and reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.errors import OptionError
from kvseal.workload.matrix.case import (
    EXACT,
    FS,
    MP,
    NATIVE,
    NONE,
    ORDINARY,
    PROCESS,
    SERVED,
    Act,
    Ask,
    Case,
    Required,
)
from kvseal.workload.matrix.fields import FIELDS

HIT, MISS, REFUSED, SEEN = Required.HIT, Required.MISS, Required.REFUSED, Required.SEEN


@dataclass(frozen=True)
class ArtifactKind:
    """What an artifact of the table is.

    kind: ordinary, snapkv, legacy or chained.
    local: request-local, and sealed anew for each cell.
    title: in words, for people.
    """

    kind: str
    local: bool
    title: str


ARTIFACTS: dict[str, ArtifactKind] = {
    "ordinary-a": ArtifactKind("ordinary", False, "ordinary KV of source A"),
    "literal-a": ArtifactKind("ordinary", False, "ordinary KV of the tokens that snapkv-a keeps"),
    "snapkv-a": ArtifactKind("snapkv", False, "SnapKV of source A, its own query, 50 % dropped"),
    "snapkv-a-query-b": ArtifactKind("snapkv", False, "SnapKV of source A, query of source B"),
    "snapkv-a-quarter": ArtifactKind("snapkv", False, "SnapKV of source A, 75 % dropped"),
    "fixed-a": ArtifactKind("snapkv", False, "source A at fixed positions"),
    "fixed-b": ArtifactKind("snapkv", False, "source B at the same positions, same tokens there"),
    "chained-a": ArtifactKind("chained", False, "SnapKV of snapkv-a"),
    "local-a": ArtifactKind("snapkv", True, "SnapKV of source A, sealed request-local"),
    "local-a-again": ArtifactKind("snapkv", True, "the same, sealed for another request"),
    "legacy-a": ArtifactKind("legacy", True, "the same as a bare (kv, tokens) tuple"),
    "legacy-a-again": ArtifactKind("legacy", True, "the same tuple of another request"),
}

_NO_ENGINE = "without an engine nothing is computed, and LMCache's own engine knows no salt"
_TEXT = "the text of a variant is all that differs, and no other backend or restart looks into it"
_PLACE = "it is about this part of the server, whatever else was restarted"

_SEED = (
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

_TOGETHER = (
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
        elsewhere=_NO_ENGINE,
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
        elsewhere=_NO_ENGINE,
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
        elsewhere=_NO_ENGINE,
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

_IDENTITY = tuple(
    Case(
        f"field-{path}",
        "identity",
        "SnapKV",
        f"a manifest with another {path}",
        ("local-a",),
        (Ask("local-a", f"field:{path}", MISS),),
        backends=(PROCESS, MP),
        afters=(NONE,),
        elsewhere=_TEXT,
    )
    for path in FIELDS
)

_TENANCY = (
    Case(
        "other-tenant",
        "tenancy",
        "SnapKV of tenant A",
        "tenant B with the exact variant",
        ("snapkv-a",),
        (Ask("snapkv-a", EXACT, MISS, salt="other"), Ask("snapkv-a", EXACT, HIT)),
        backends=SERVED,
        elsewhere=_NO_ENGINE,
    ),
    Case(
        "other-tenant-ordinary",
        "tenancy",
        "ordinary KV of tenant A",
        "ordinary request of tenant B",
        ("ordinary-a",),
        (Ask("ordinary-a", ORDINARY, MISS, salt="other"),),
        backends=SERVED,
        elsewhere=_NO_ENGINE,
    ),
    Case(
        "salt-is-variant",
        "tenancy",
        "SnapKV",
        "ordinary request whose salt is the variant's text",
        ("snapkv-a",),
        (Ask("snapkv-a", ORDINARY, MISS, salt="variant"),),
        backends=SERVED,
        elsewhere=_NO_ENGINE,
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
        elsewhere=_PLACE,
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
        elsewhere=_NO_ENGINE,
    ),
)

_SCOPE = (
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
    ),
)

_INDEX = (
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
        elsewhere=_NO_ENGINE,
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
    ),
)

_STORE = (
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
            elsewhere=_TEXT,
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
    ),
)

_SERVER = (
    Case(
        "capability",
        "server",
        "the server",
        "whoever asks what it can do",
        (),
        (Act("capability", "snapkv-a", SEEN, "transform_identity_v1"),),
        backends=SERVED,
        afters=(NONE,),
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
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
        elsewhere=_PLACE,
    ),
)

CASES: tuple[Case, ...] = (
    *_SEED,
    *_TOGETHER,
    *_IDENTITY,
    *_TENANCY,
    *_SCOPE,
    *_INDEX,
    *_STORE,
    *_SERVER,
)


def case_named(name: str) -> Case:
    """Return a case of the table.

    Raises:
        OptionError: there is no such case.
    """
    for case in CASES:
        if case.name == name:
            return case
    raise OptionError(
        "no such case of the matrix",
        option="case",
        value=name,
        expected=f"one of {', '.join(case.name for case in CASES)}",
    )
