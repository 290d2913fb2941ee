# SPDX-License-Identifier: Apache-2.0
"""Reuse on real engines: what must be hit is, with equal tokens, and what can't be is an error."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from kvseal.drivers.run import ModelTokenizer, load_witness
from kvseal.drivers.serving import Serving
from kvseal.errors import EvidenceError, StoreError
from kvseal.spec.runspec import RunSpec
from kvseal.spec.workload_rules import cached_prefix_tokens
from kvseal.workload.build import build_prompts
from kvseal.workload.prompt import Prompt

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def prompts(spec: RunSpec, serving: Serving) -> list[Prompt]:
    return build_prompts(spec, ModelTokenizer(serving.model.path))


@pytest.fixture(autouse=True)
def empty_cache(serving: Serving) -> None:
    _, after = serving.cache.clear()
    assert after.objects == 0


def test_ordinary_reuse_is_counted_and_changes_no_token(
    serving: Serving, prompts: list[Prompt], spec: RunSpec
) -> None:
    ids = prompts[0].token_ids
    cold = serving.ask(ids, max_tokens=8)
    serving.cache.wait_unlocked()
    warm = serving.ask(ids, max_tokens=8)
    expected = cached_prefix_tokens(len(ids), spec.lmcache.chunk_size_tokens)
    assert (cold.hit_tokens_server, cold.completion.hit_tokens) == (0, 0)
    assert (warm.hit_tokens_server, warm.completion.hit_tokens) == (expected, expected)
    assert warm.completion.token_ids == cold.completion.token_ids


def test_a_salt_keeps_two_tenants_apart(serving: Serving, prompts: list[Prompt]) -> None:
    ids = prompts[0].token_ids
    serving.prefill(ids, cache_salt="tenant-a")
    assert serving.ask(ids, max_tokens=1, cache_salt="tenant-b").hit_tokens_server == 0
    assert serving.ask(ids, max_tokens=1, cache_salt="tenant-a").hit_tokens_server > 0


def test_compacted_answer_is_that_of_transformers_on_the_same_cache(
    serving: Serving, prompts: list[Prompt], spec: RunSpec
) -> None:
    from kvseal.compaction.witness import decode_reference

    serving.prefill(prompts[1].token_ids, cache_salt="source")
    compacted = serving.compact(prompts[1].token_ids, source_salt="source", store_salt="compacted")
    answer = serving.ask(compacted.token_ids, max_tokens=8, cache_salt="compacted")
    witness = decode_reference(
        load_witness(serving.model.path),
        compacted.compacted.keys,
        compacted.compacted.values,
        compacted.tail_token_ids,
        8,
        rope=serving.rope,
    )
    assert answer.hit_tokens_server == compacted.stored_tokens < len(prompts[1].token_ids)
    assert tuple(answer.completion.token_ids) == witness.token_ids


def test_stock_lmcache_serves_compacted_kv_to_an_ordinary_prompt(
    serving: Serving, prompts: list[Prompt]
) -> None:
    """The failure kvseal exists for. When the stack names transformed KV, this must turn."""
    serving.prefill(prompts[0].token_ids, cache_salt="source")
    compacted = serving.compact(prompts[0].token_ids, source_salt="source", store_salt="")
    served = serving.ask(compacted.token_ids, max_tokens=8)
    serving.cache.clear()
    true = serving.ask(compacted.token_ids, max_tokens=8)
    assert served.hit_tokens_server == compacted.stored_tokens
    assert true.hit_tokens_server == 0
    assert served.completion.token_ids != true.completion.token_ids


def test_a_second_store_of_the_same_tokens_is_an_error_and_reserves_nothing(
    serving: Serving, prompts: list[Prompt]
) -> None:
    serving.prefill(prompts[0].token_ids, cache_salt="source")
    compacted = serving.compact(prompts[0].token_ids, source_salt="source", store_salt="twice")
    parts = compacted.compacted
    with pytest.raises(StoreError):
        serving.sdk.store_kv(parts.keys, parts.values, parts.token_ids, "twice")
    contents = serving.cache.wait_unlocked()
    assert contents.write_locked == 0
    again = serving.ask(compacted.token_ids, max_tokens=1, cache_salt="twice")
    assert again.hit_tokens_server == compacted.stored_tokens


def test_queries_that_were_not_captured_are_named_not_waited_for_in_silence(
    serving: Serving, prompts: list[Prompt], spec: RunSpec
) -> None:
    """A prompt whose KV a client stored was never computed, so it has no queries."""
    serving.prefill(prompts[0].token_ids, cache_salt="source")
    compacted = serving.compact(prompts[0].token_ids, source_salt="source", store_salt="kept")
    with pytest.raises(EvidenceError, match="captured queries are missing from chunk 0"):
        serving.sdk.retrieve_queries(compacted.compacted.token_ids, "kept", wait_seconds=1)
