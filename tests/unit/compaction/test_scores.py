# SPDX-License-Identifier: Apache-2.0
"""Scores against kvpress, against a plain reading of the formula, and their symmetries."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")

from kvseal.compaction import scores as module  # noqa: E402
from kvseal.compaction.scores import snapkv_scores  # noqa: E402
from kvseal.errors import KvsealError  # noqa: E402

WINDOW, KERNEL = 16, 5


def random_tensors(tokens: int = 50, layers: int = 2, q_heads: int = 6, kv_heads: int = 2) -> Any:
    generator = torch.Generator().manual_seed(11)
    queries = torch.randn(layers, tokens, q_heads, 8, generator=generator) * 2
    return queries, torch.randn(layers, tokens, kv_heads, 8, generator=generator) * 2


def by_the_formula(queries: Any, keys: Any, window: int, kernel: int) -> list[list[list[float]]]:
    """`[layers][kv_heads][tokens - window]` with loops and float64, no tensor tricks."""
    layers, tokens, kv_heads, size = keys.shape
    group, before = queries.shape[2] // kv_heads, tokens - window
    result = []
    for layer in range(layers):
        heads = []
        for kv_head in range(kv_heads):
            total = [0.0] * before
            for head in range(kv_head * group, (kv_head + 1) * group):
                for at in range(before, tokens):
                    query = queries[layer, at, head].double()
                    logit = [
                        float(query @ keys[layer, seen, kv_head].double()) / math.sqrt(size)
                        for seen in range(at + 1)
                    ]
                    weight = [math.exp(value - max(logit)) for value in logit]
                    for seen in range(before):
                        total[seen] += weight[seen] / sum(weight) / (window * group)
            reach = kernel // 2
            padded = [0.0] * reach + total + [0.0] * reach
            heads.append([sum(padded[i : i + kernel]) / kernel for i in range(before)])
        result.append(heads)
    return result


def score(queries: Any, keys: Any, granularity: str = "layer_head", **changes: Any) -> Any:
    options = {"window_tokens": WINDOW, "kernel_tokens": KERNEL, **changes}
    return snapkv_scores(queries, keys, granularity=granularity, **options)


@pytest.mark.parametrize(("window", "kernel"), [(1, 1), (4, 3), (7, 13)])
def test_formula(window: int, kernel: int) -> None:
    queries, keys = random_tensors(tokens=20)
    ours = score(queries, keys, window_tokens=window, kernel_tokens=kernel)
    expected = torch.tensor(by_the_formula(queries, keys, window, kernel), dtype=torch.float32)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", [1, 5, 7])
def test_kvpress_gives_the_same(prefill: Any, kvpress: Any, kernel: int) -> None:
    press = kvpress.SnapKVPress(compression_ratio=0.5, window_size=WINDOW, kernel_size=kernel)
    ours = score(prefill.queries, prefill.keys, kernel_tokens=kernel)
    assert ours.dtype == torch.float32
    for layer, seen in enumerate(prefill.seen):
        keys = prefill.keys[layer].transpose(0, 1)[None]
        with torch.inference_mode():
            theirs = press.score(
                seen["module"],
                seen["hidden_states"],
                keys,
                keys,
                None,
                {"position_embeddings": seen["position_embeddings"]},
            )[0]
        torch.testing.assert_close(ours[layer], theirs[:, :-WINDOW], rtol=1e-5, atol=1e-7)


def test_granularities_are_means_of_the_finest(prefill: Any) -> None:
    finest = score(prefill.queries, prefill.keys)
    layer = score(prefill.queries, prefill.keys, "layer")
    everything = score(prefill.queries, prefill.keys, "all")
    assert (finest.shape, layer.shape, everything.shape) == ((3, 2, 144), (3, 144), (144,))
    torch.testing.assert_close(layer, finest.mean(1), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(everything, finest.double().mean((0, 1)), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("held", [1, 6 * WINDOW * 7, 6 * WINDOW * 40])
def test_chunks_make_no_difference(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys = random_tensors()
    whole = score(queries, keys)
    monkeypatch.setattr(module, "_WEIGHTS_HELD", held)
    torch.testing.assert_close(score(queries, keys), whole, rtol=1e-5, atol=1e-8)


def test_queries_of_the_window_are_enough() -> None:
    queries, keys = random_tensors()
    assert torch.equal(score(queries[:, -WINDOW:], keys), score(queries, keys))


def test_order_of_past_tokens_does_not_matter_to_their_scores() -> None:
    queries, keys = random_tensors()
    order = torch.randperm(50 - WINDOW, generator=torch.Generator().manual_seed(1))
    mixed = keys.clone()
    mixed[:, : 50 - WINDOW] = keys[:, order]
    plain = score(queries, keys, kernel_tokens=1)
    torch.testing.assert_close(score(queries, mixed, kernel_tokens=1), plain[..., order])


def test_order_of_layers_and_heads_does_not_matter_to_the_whole() -> None:
    queries, keys = random_tensors()
    swapped = queries.view(2, 50, 2, 3, 8).flip(0, 2).reshape(2, 50, 6, 8), keys.flip(0, 2)
    torch.testing.assert_close(score(*swapped, "all"), score(queries, keys, "all"))


def test_a_query_head_reads_its_own_kv_head() -> None:
    queries, keys = random_tensors()
    touched = keys.clone()
    touched[:, :, 1] *= 3
    plain, changed = score(queries, keys), score(queries, touched)
    assert torch.equal(plain[:, 0], changed[:, 0])
    assert not torch.allclose(plain[:, 1], changed[:, 1], rtol=1e-2)


def test_later_window_tokens_are_hidden_from_earlier_queries() -> None:
    """With the last key overwhelming, all queries but the last still weigh the past."""
    queries, keys = random_tensors(q_heads=1, kv_heads=1)
    queries[..., 0] = 1.0
    keys[:, -1, :, 0] = 1e4
    weight = score(queries, keys, kernel_tokens=1).sum(-1)
    plain = score(queries[:, :-1], keys[:, :-1], window_tokens=WINDOW - 1, kernel_tokens=1).sum(-1)
    torch.testing.assert_close(weight, plain * (WINDOW - 1) / WINDOW)


def test_softmax_scale() -> None:
    queries, keys = random_tensors()
    usual = score(queries, keys)
    torch.testing.assert_close(score(queries * 2, keys, softmax_scale=0.5 / math.sqrt(8)), usual)
    assert not torch.allclose(score(queries, keys, softmax_scale=1.0), usual, rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(dtype: Any) -> None:
    queries, keys = (t.to(dtype) for t in random_tensors())
    assert torch.equal(score(queries, keys), score(queries.float(), keys.float()))


Q, K = random_tensors()


@pytest.mark.parametrize(
    ("queries", "keys", "options", "option"),
    [
        (Q[..., :4], K, {}, "queries"),
        (Q[:1], K, {}, "queries"),
        (Q[:, :, :5], K, {}, "queries"),
        (Q[:, :40], K, {}, "queries"),
        (Q.long(), K, {}, "queries"),
        (Q, K[0], {}, "keys"),
        (Q, K[:, :0], {}, "keys"),
        (Q, K, {"window_tokens": 50}, "snapkv.window_tokens"),
        (Q, K, {"window_tokens": 51}, "snapkv.window_tokens"),
        (Q, K, {"kernel_tokens": 35}, "snapkv.kernel_tokens"),
        (Q, K, {"granularity": "token"}, "granularity"),
        (Q * float("nan"), K, {}, "queries, keys"),
        (Q * 1e20, K * 1e20, {}, "queries, keys"),
    ],
)
def test_refused(queries: Any, keys: Any, options: dict[str, Any], option: str) -> None:
    with pytest.raises(KvsealError) as caught:
        score(queries, keys, **options)
    assert caught.value.option == option
    assert caught.value.expected
