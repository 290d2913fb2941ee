# SPDX-License-Identifier: Apache-2.0
"""For each codemod of transform identity: the rows that show that it is missing.

And rows that must stay green beside them, since a stack that is merely broken
turns every row red. Used by codemod_mutants.py; a test holds the names against
the table of cases and the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Place = tuple[str, str]
"""Case and backend."""


@dataclass(frozen=True)
class Rows:
    """What is run without a codemod.

    red, green: places that must be found wrong, and that must pass.
    starts: whether the engines start at all; if not, nothing is red or green.
    backends: those to run; `red` and `green` are some of their cells.
    """

    backends: tuple[str, ...]
    red: frozenset[Place]
    green: frozenset[Place]
    starts: bool = True
    cases: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        cases = sorted({case for case, _ in self.red | self.green} or {"ordinary-same-prefix"})
        object.__setattr__(self, "cases", tuple(cases))


def places(backend: str, words: str) -> frozenset[Place]:
    """Return the cells of the cases in `words` on one backend."""
    return frozenset((case, backend) for case in words.split())


ORDINARY = "ordinary-same-prefix other-tenant-ordinary"
HITS = "same-transform request-local-own legacy-own two-sources-together descendant-reused"
MISSES = "literal-retained-tokens other-query other-source other-ratio"
BAD_NAMES = "malformed-variant unknown-version scope-not-allowed salt-holds-mark"
LEASE = "lease-ended"

MUTANTS: Mapping[str, Rows] = {
    # Every other edit imports what this one adds.
    "lmcache_transform_identity": Rows(("mp",), frozenset(), frozenset(), starts=False),
    # vLLM and the connector look before a key is made; only HTTP gets as far as the key.
    "lmcache_key_variant": Rows(
        ("mp",),
        red=places("mp", "forged-key"),
        green=places("mp", f"{ORDINARY} {HITS} {MISSES} {BAD_NAMES} capability"),
    ),
    # A lookup finds no layout, so what was stored can't be read back.
    "lmcache_layout_lookup": Rows(
        ("mp",),
        red=places("mp", f"{HITS} {MISSES} {LEASE}"),
        green=places("mp", f"{ORDINARY} miss-stores-nothing capability"),
    ),
    # vLLM finds no connector that carries variants and refuses each request that names one.
    "lmcache_connector_variant": Rows(
        ("mp",),
        red=places("mp", f"{HITS} other-query miss-stores-nothing {LEASE}"),
        green=places("mp", f"{ORDINARY} literal-retained-tokens forged-key capability"),
    ),
    "lmcache_engine_variant": Rows(
        ("process", "mp"),
        red=places(
            "process",
            f"same-transform {MISSES} two-sources-together request-local-own field-query.digest",
        ),
        green=places("process", "ordinary-same-prefix")
        | places("mp", f"ordinary-same-prefix same-transform {MISSES} two-sources-together"),
    ),
    # kvseal's own client doesn't need it; LMCache's does.
    "lmcache_sdk_variant": Rows(
        ("mp",),
        red=places("mp", "sdk-stream"),
        green=places("mp", f"{ORDINARY} {HITS} {MISSES} {LEASE} second-store"),
    ),
    # All scopes are announced, nothing ends, and request-local KV goes where all goes.
    "lmcache_scope_enforcement": Rows(
        ("mp", "fs"),
        red=places("mp", f"scope-not-allowed {LEASE} events")
        | places("fs", "scope-not-allowed forbidden-scope request-local-own request-local-files"),
        green=places("mp", "ordinary-same-prefix same-transform other-query request-local-own")
        | places("fs", "ordinary-same-prefix same-transform other-query"),
    ),
    "lmcache_variant_index": Rows(
        ("mp",),
        red=places("mp", "recipe-found recipe-of-other-query recipe-of-other-tenant"),
        green=places("mp", f"{ORDINARY} {HITS} {MISSES} request-local-not-published"),
    ),
    "lmcache_event_fence": Rows(
        ("mp",),
        red=places("mp", "events"),
        green=places("mp", f"{ORDINARY} {HITS} {MISSES} metrics lookup-log"),
    ),
    "lmcache_name_length": Rows(
        ("fs",),
        red=places("fs", "name-too-long"),
        green=places("fs", f"{ORDINARY} same-transform {MISSES} second-store"),
    ),
    "lmcache_payload_seal": Rows(
        ("fs",),
        red=places("fs", "damaged-object"),
        green=places("fs", f"{ORDINARY} same-transform {MISSES}"),
    ),
    # The server's counters are by label, so a hit on a variant is not seen there any more.
    "lmcache_labels": Rows(
        ("mp",),
        red=places("mp", "metrics lookup-log"),
        green=places("mp", f"{ORDINARY} literal-retained-tokens forged-key capability"),
    ),
    # Nobody sends a variant to a server that does not say that it knows them.
    "lmcache_capability": Rows(
        ("mp",),
        red=places("mp", f"capability {HITS} {MISSES} {LEASE}"),
        green=places("mp", ORDINARY),
    ),
    # On native the connector is the second lock: it loads nothing where vLLM would mix blocks.
    "vllm_block_hash_variant": Rows(
        ("mp", "native"),
        red=places("mp", BAD_NAMES)
        | places("native", "same-transform ordinary-after-variant other-variant-after-variant"),
        green=places("mp", f"{ORDINARY} {MISSES} same-transform ordinary-after-variant")
        | places("native", "ordinary-same-prefix literal-retained-tokens"),
    ),
}
