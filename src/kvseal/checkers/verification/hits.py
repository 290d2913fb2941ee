# SPDX-License-Identifier: Apache-2.0
"""Did each answer reuse exactly what it had to? Counts of the engine and of the cache server.

An answer without its hits was recomputed, whatever its tokens say, and one with
other hits than foretold is not understood: neither shows that reuse is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.checkers.verification.reasons import Reason, answer_name, reason
from kvseal.records.history import Event
from kvseal.workload.probes import Geometry, Probe, expected_cached


def expected_hits(target: str, probe: Probe, kind: str, geometry: Geometry) -> int:
    """Return the cached tokens that an answer of this kind has to report."""
    known = probe.cold_prefix_tokens if kind == "cold" else None
    return expected_cached(target, probe.tokens, geometry, known)


def expected_server_hits(expected: int, geometry: Geometry) -> int:
    """Return the tokens that a cache server has to load for `expected` cached ones.

    It loads whole chunks: the engine takes one token less than the last holds
    where the chunks are the whole prompt.
    """
    chunk = geometry.chunk_tokens
    return -(-expected // chunk) * chunk


def check_hits(target: str, probe: Probe, answer: Event, geometry: Geometry) -> Iterator[Reason]:
    """Yield what is wrong with the hits of one answer of a target."""
    kind, seen = answer["kind"], answer["cached_tokens"]
    expected = expected_hits(target, probe, kind, geometry)
    about = {"target": target, "probe": probe.id, "answer": answer_name(kind, answer["repetition"])}
    if seen is None:
        yield reason("hits.unknown", **about)
    elif seen != expected:
        code = "not_cold" if kind == "cold" else "differ" if seen else "zero"
        yield reason(f"hits.{code}", **about, seen=seen, expected=expected)
    if target != "mp":
        return
    loaded, wanted = answer["server_hit_tokens"], expected_server_hits(expected, geometry)
    if loaded is None:
        yield reason("hits.server_unknown", **about)
    elif loaded != wanted:
        yield reason("hits.server_differ", **about, seen=loaded, expected=wanted)
