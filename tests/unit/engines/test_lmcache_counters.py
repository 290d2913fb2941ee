# SPDX-License-Identifier: Apache-2.0
"""The server's counters: parsing, picking one model and salt, and refusing doubtful ones."""

from __future__ import annotations

import pytest

from kvseal.engines.lmcache_counters import (
    HitCounters,
    events_queued,
    hit_counters,
    parse_samples,
    total,
)
from kvseal.errors import EvidenceError

PAGE = r"""
# HELP lmcache_mp_num_chunks_loaded_total chunks
# TYPE lmcache_mp_num_chunks_loaded_total counter
lmcache_mp_num_chunks_loaded_total{cache_salt="",model_name="/m",worker_id="1"} 15.0
lmcache_mp_num_chunks_loaded_total{cache_salt="",model_name="/m",worker_id="2"} 2.0
lmcache_mp_num_chunks_loaded_total{cache_salt="s",model_name="/m",worker_id="1"} 8.0
lmcache_mp_num_chunks_loaded_total{cache_salt="",model_name="/m##query",worker_id="1"} 99.0
lmcache_mp_lookup_hit_tokens_total{cache_salt="",model_name="/m"} 1088.0
lmcache_mp_lookup_requested_tokens_total{cache_salt="",model_name="/m"} 2.048e+03
lmcache_mp_event_bus_queue_depth 0.0
lmcache_mp_event_bus_dropped_events_total 0.0
odd{text="a \"quoted\" \\ back\nslash"} 1
"""


def counters(salt: str = "") -> HitCounters:
    samples = parse_samples(PAGE)
    return hit_counters(samples, model_name="/m", cache_salt=salt, chunk_size_tokens=64)


def test_one_model_and_salt_over_all_its_workers() -> None:
    assert counters() == HitCounters(loaded=17 * 64, found=1088, looked_up=2048, dropped_events=0)
    assert counters("s") == HitCounters(loaded=512, found=0, looked_up=0, dropped_events=0)
    assert counters("never used").loaded == 0


def test_escaped_labels() -> None:
    assert total(parse_samples(PAGE), "odd", {"text": 'a "quoted" \\ back\nslash'}) == 1


def test_a_page_without_lmcaches_counters_is_no_zero() -> None:
    assert events_queued(parse_samples(PAGE)) == 0
    with pytest.raises(EvidenceError, match="publishes no counters"):
        events_queued(parse_samples("process_open_fds 33.0\n"))


def test_what_was_added() -> None:
    before = HitCounters(64, 64, 128, 3)
    assert HitCounters(192, 192, 256, 3).since(before) == HitCounters(128, 128, 128, 0)


@pytest.mark.parametrize(
    "after", [HitCounters(0, 64, 128, 3), HitCounters(128, 128, 256, 4), HitCounters(64, 64, 0, 3)]
)
def test_a_restart_or_lost_events_is_no_evidence(after: HitCounters) -> None:
    with pytest.raises(EvidenceError, match="can't be trusted"):
        after.since(HitCounters(64, 64, 128, 3))
