# SPDX-License-Identifier: Apache-2.0
"""What is kept, what it becomes, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kvseal.compaction.rope import rerotate  # noqa: E402
from kvseal.compaction.rope_config import rope_from_config  # noqa: E402
from kvseal.compaction.rope_parameters import RopeParameters  # noqa: E402
from kvseal.compaction.scores import snapkv_scores  # noqa: E402
from kvseal.compaction.snapkv import SnapKV  # noqa: E402
from kvseal.errors import OptionError, TransformError  # noqa: E402
from kvseal.spec import matrix_rules  # noqa: E402

ROPE = RopeParameters("default", 10000.0, 8, 8, 4096)


def tensors(tokens: int, seed: int = 0) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, tokens, heads, 8, generator=generator) for heads in (6, 2, 2))


@given(
    drop=st.integers(1, 99),
    chunks=st.integers(1, 200),
    chunk=st.sampled_from([1, 16, 64, 256]),
    window=st.integers(1, 64),
)
def test_retained_count(drop: int, chunks: int, chunk: int, window: int) -> None:
    source, snapkv = chunks * chunk, SnapKV(drop, window, 1)
    share = Fraction(source * (100 - drop), 100)
    expected = math.ceil(share / chunk) * chunk  # at least the share, in whole chunks
    if window >= source or expected < window:
        with pytest.raises(OptionError):
            snapkv.retained_count(source, chunk)
    else:
        assert snapkv.retained_count(source, chunk) == expected
        assert window <= expected <= source
        assert matrix_rules.retained_tokens(source, drop, chunk) == expected


@given(
    chunks=st.integers(2, 12),
    drop=st.integers(1, 99),
    kernel=st.sampled_from([1, 3, 5]),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_selection(chunks: int, drop: int, kernel: int, seed: int) -> None:
    tokens = 8 * chunks
    queries, keys, _ = tensors(tokens, seed)
    snapkv = SnapKV(drop, 8, kernel)
    kept = snapkv.select(queries, keys, chunk_tokens=8)
    assert kept.dtype == torch.int64
    assert len(kept) == snapkv.retained_count(tokens, 8)
    assert bool((kept.diff() > 0).all())
    assert kept[-8:].tolist() == list(range(tokens - 8, tokens))
    assert torch.equal(kept, snapkv.select(queries.clone(), keys.clone(), chunk_tokens=8))
    scores = snapkv_scores(queries, keys, window_tokens=8, kernel_tokens=kernel)
    dropped = sorted(set(range(tokens - 8)) - set(kept.tolist()))
    if dropped and len(kept) > 8:
        assert scores[kept[:-8]].min() >= scores[dropped].max() * (1 - 2**-15)


def test_ties_go_to_the_lowest_position() -> None:
    queries, keys = torch.zeros(2, 64, 4, 8), torch.zeros(2, 64, 2, 8)
    # Equal attention everywhere: without pooling all scores are one number.
    assert SnapKV(50, 8, 1).select(queries, keys).tolist() == [*range(24), *range(56, 64)]
    # Pooling counts zeros beyond both ends, so the two outermost on each side lose.
    assert SnapKV(50, 8, 5).select(queries, keys).tolist() == [*range(2, 26), *range(56, 64)]
    # Two groups of equals: the better one whole, then the lowest of the rest.
    queries[:], keys[:, 40:44] = 1.0, 1.0
    assert SnapKV(75, 8, 1).select(queries, keys).tolist() == [
        *range(4),
        *range(40, 44),
        *range(56, 64),
    ]


def test_noise_below_the_tie_decides_nothing() -> None:
    """What another device would add in another order: the last bits of every score."""
    generator = torch.Generator().manual_seed(8)
    queries, keys = torch.zeros(2, 512, 4, 8), torch.zeros(2, 512, 2, 8)
    keys += torch.randn(keys.shape, generator=generator) * 1e-7
    queries += 1.0
    assert SnapKV(50, 8, 1).select(queries, keys)[:-8].tolist() == list(range(248))


def test_apply_gathers_rotates_and_accounts(prefill: Any) -> None:
    rope = rope_from_config(prefill.model.config.to_dict())
    snapkv = SnapKV(50, 16, 5)
    result = snapkv.apply(
        prefill.queries, prefill.keys, prefill.values, prefill.token_ids, rope, chunk_tokens=32
    )
    kept = snapkv.select(prefill.queries, prefill.keys, chunk_tokens=32)
    assert result.retained_tokens == 96  # 80 asked for, rounded up to chunks of 32
    assert torch.equal(result.retained_positions, kept)
    assert result.new_positions.tolist() == list(range(96))
    assert list(result.token_ids) == [prefill.token_ids[position] for position in kept]
    assert (result.source_tokens, result.granularity) == (160, "all")
    assert torch.equal(result.values, prefill.values[:, kept])
    moved = rerotate(prefill.keys[:, kept], kept, torch.arange(96), rope)
    assert torch.equal(result.keys, moved)
    assert not torch.allclose(result.keys, prefill.keys[:, kept], atol=0.1)


def test_nothing_dropped_means_nothing_changed() -> None:
    queries, keys, values = tensors(64)
    result = SnapKV(1, 8, 5).apply(queries, keys, values, range(64), ROPE, chunk_tokens=32)
    assert result.retained_positions.tolist() == list(range(64))
    assert torch.equal(result.keys, keys)
    assert torch.equal(result.values, values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtype_is_kept_and_inputs_are_not_written(dtype: Any) -> None:
    parts = [t.to(dtype) for t in tensors(64)]
    before = [t.clone() for t in parts]
    result = SnapKV(50, 8, 5).apply(*parts, range(64), ROPE)
    assert result.keys.dtype == result.values.dtype == dtype
    assert all(torch.equal(*pair) for pair in zip(parts, before, strict=True))


def test_whole_press_of_kvpress_agrees(make_prefill: Callable[..., Any], kvpress: Any) -> None:
    """With one layer and one KV head its selection and ours are the same by definition."""
    small = make_prefill(tokens=128, num_hidden_layers=1, num_key_value_heads=1)
    press = kvpress.KeyRerotationPress(kvpress.SnapKVPress(0.5, window_size=16, kernel_size=5))
    seen = small.seen[0]
    seen["module"].rotary_emb = small.model.model.rotary_emb
    with torch.inference_mode():
        keys, values = press.compress(
            seen["module"],
            seen["hidden_states"],
            small.keys.transpose(1, 2),
            small.values.transpose(1, 2),
            None,
            {"position_embeddings": seen["position_embeddings"]},
        )
    rope = rope_from_config(small.model.config.to_dict())
    ours = SnapKV(50, 16, 5).apply(small.queries, small.keys, small.values, small.token_ids, rope)
    assert torch.equal(ours.values, values.transpose(1, 2))
    torch.testing.assert_close(ours.keys, keys.transpose(1, 2), rtol=1e-5, atol=5e-5)


def test_identity_of_the_algorithm() -> None:
    assert (SnapKV.name, SnapKV.version, SnapKV.granularity) == ("snapkv", "1", "all")
    assert dataclasses.asdict(SnapKV(50)) == {
        "drop_percent": 50,
        "window_tokens": 64,
        "kernel_tokens": 5,
    }


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ((0,), "snapkv.drop_percent"),
        ((100,), "snapkv.drop_percent"),
        ((-5,), "snapkv.drop_percent"),
        ((True,), "snapkv.drop_percent"),
        ((0.5,), "snapkv.drop_percent"),
        ((50, 0), "snapkv.window_tokens"),
        ((50, "64"), "snapkv.window_tokens"),
        ((50, 64, 0), "snapkv.kernel_tokens"),
        ((50, 64, 4), "snapkv.kernel_tokens"),
    ],
)
def test_options_refused(options: Any, option: str) -> None:
    with pytest.raises(OptionError) as caught:
        SnapKV(*options)
    assert caught.value.option == option
    assert caught.value.value == options[-1]
    assert caught.value.expected


@pytest.mark.parametrize(
    ("options", "tokens", "chunk", "option"),
    [
        ((50, 64), 64, 64, "snapkv.window_tokens"),
        ((50, 65), 64, 64, "snapkv.window_tokens"),
        ((50, 8, 57), 64, 64, "snapkv.kernel_tokens"),
        ((50, 8), 100, 64, "lmcache.chunk_size_tokens"),
        ((50, 8), 0, 64, "lmcache.chunk_size_tokens"),
        ((50, 8), 64, 0, "lmcache.chunk_size_tokens"),
        ((90, 60), 256, 1, "snapkv.drop_percent, snapkv.window_tokens"),
    ],
)
def test_counts_refused(options: Any, tokens: int, chunk: int, option: str) -> None:
    with pytest.raises(OptionError) as caught:
        SnapKV(*options).retained_count(tokens, chunk)
    assert caught.value.option == option
    assert caught.value.remedy


def spoiled(tensor: Any, at: tuple[int, ...], value: float) -> Any:
    copy = tensor.clone()
    copy[at] = value
    return copy


Q, K, V = tensors(64)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("parts", "option"),
    [
        ((spoiled(Q, (1, 63, 2, 3), NAN), K, V, range(64), ROPE), "queries"),
        ((spoiled(Q, (0, 60, 0, 0), INF), K, V, range(64), ROPE), "queries"),
        ((Q, spoiled(K, (1, 0, 1, 7), NAN), V, range(64), ROPE), "keys"),
        ((Q, spoiled(K, (0, 5, 0, 0), -INF), V, range(64), ROPE), "keys"),
        ((Q, K, spoiled(V, (1, 9, 1, 1), NAN), range(64), ROPE), "values"),
        ((Q, K, V[:, :32], range(64), ROPE), "values"),
        ((Q, K, V.half(), range(64), ROPE), "values"),
        ((Q, K, V, range(63), ROPE), "token_ids"),
        ((Q, K, V, range(64), dataclasses.replace(ROPE, head_size=16)), "rope.head_size"),
        ((Q[:, :32], K, V, range(64), ROPE), "queries"),
        ((Q, K, V, range(64), dataclasses.replace(ROPE, max_position_embeddings=63)), "positions"),
    ],
)
def test_inputs_refused(parts: Any, option: str) -> None:
    with pytest.raises(TransformError) as caught:
        SnapKV(50, 8, 5).apply(*parts)
    assert caught.value.option == option


def test_half_keys_that_leave_their_range_are_refused() -> None:
    queries, keys, values = (t.half() for t in tensors(64))
    keys[:, 63] = 60000.0
    queries[:] = 0.0
    with pytest.raises(TransformError, match="rerotated keys"):
        SnapKV(50, 8, 5).apply(queries, keys, values, range(64), ROPE)
