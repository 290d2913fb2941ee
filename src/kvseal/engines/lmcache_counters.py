# SPDX-License-Identifier: Apache-2.0
"""The LMCache server's own counters, as evidence of what it loaded into an engine.

Of its many, `lmcache_mp_num_chunks_loaded_total` alone counts what an engine's
worker really retrieved; reads by the SDK and mere lookups are not in it. The
lookup totals count engines and the SDK alike. docs/upstream-notes.md says how
each was told apart. Called by kvseal.engines.lmcache_http; talks to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvseal.errors import EvidenceError

CHUNKS_LOADED = "lmcache_mp_num_chunks_loaded_total"
TOKENS_FOUND = "lmcache_mp_lookup_hit_tokens_total"
TOKENS_LOOKED_UP = "lmcache_mp_lookup_requested_tokens_total"
EVENTS_DROPPED = "lmcache_mp_event_bus_dropped_events_total"
EVENTS_QUEUED = "lmcache_mp_event_bus_queue_depth"

SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line of a Prometheus page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class HitCounters:
    """Running totals of one model and salt since the server started, in tokens.

    `loaded` counts tokens that an engine's worker retrieved, `found` and
    `looked_up` those of lookups, by engines and by the SDK alike. `dropped_events`
    counts events that the server lost before counting them, over all models.
    """

    loaded: int
    found: int
    looked_up: int
    dropped_events: int

    def since(self, before: HitCounters) -> HitCounters:
        """Return what was added after `before`.

        Raises:
            EvidenceError: when a total fell (the server restarted) or events were lost.
        """
        delta = HitCounters(
            self.loaded - before.loaded,
            self.found - before.found,
            self.looked_up - before.looked_up,
            self.dropped_events - before.dropped_events,
        )
        if delta.dropped_events or min(delta.loaded, delta.found, delta.looked_up) < 0:
            raise EvidenceError(
                "the LMCache server's counters can't be trusted over this request",
                value=f"before {before}, after {self}",
                expected="totals that only grow, and no dropped events",
                remedy="see logs/lmcache.log for a restart or an overload",
            )
        return delta


def parse_samples(text: str) -> list[Sample]:
    """Parse a Prometheus page, comments left out."""
    samples = []
    for line in text.splitlines():
        if found := SAMPLE.match(line):
            pairs = LABEL.findall(found["labels"] or "")
            labels = {key: re.sub(r"\\(.)", _unescaped, value) for key, value in pairs}
            samples.append(Sample(found["name"], labels, float(found["value"])))
    return samples


def total(samples: list[Sample], name: str, labels: Mapping[str, str] | None = None) -> int:
    """Add up the series of `name` that carry `labels`; none at all is 0.

    A series appears with its first increment only.
    """
    wanted = (labels or {}).items()
    return int(sum(s.value for s in samples if s.name == name and wanted <= s.labels.items()))


def events_queued(samples: list[Sample]) -> int:
    """Return how many events the server has yet to count.

    Raises:
        EvidenceError: when the server publishes no counters of its own.
    """
    if not any(sample.name == EVENTS_QUEUED for sample in samples):
        raise EvidenceError(
            "the LMCache server publishes no counters",
            option="/metrics",
            expected="lmcache_mp_* series",
            remedy="start it without --disable-metrics and without an OTLP endpoint",
        )
    return total(samples, EVENTS_QUEUED)


def hit_counters(
    samples: list[Sample], *, model_name: str, cache_salt: str, chunk_size_tokens: int
) -> HitCounters:
    """Pick the totals of one model and salt out of a page."""
    labels = {"model_name": model_name, "cache_salt": cache_salt}
    return HitCounters(
        loaded=total(samples, CHUNKS_LOADED, labels) * chunk_size_tokens,
        found=total(samples, TOKENS_FOUND, labels),
        looked_up=total(samples, TOKENS_LOOKED_UP, labels),
        dropped_events=total(samples, EVENTS_DROPPED),
    )


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
