# SPDX-License-Identifier: Apache-2.0
"""A key moved to p' is the key that was rotated at p' in the first place."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")
transformers = pytest.importorskip("transformers", reason="no transformers: as above")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kvseal.compaction.rope import rerotate  # noqa: E402
from kvseal.compaction.rope_config import rope_from_config  # noqa: E402
from kvseal.compaction.rope_parameters import RopeParameters  # noqa: E402
from kvseal.compaction.rotary_table import rotary_table  # noqa: E402
from kvseal.errors import TransformError  # noqa: E402

SIZE = 32
ORIGINAL = {"original_max_position_embeddings": 4096}
TYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "yarn": {"factor": 4.0, **ORIGINAL},
    "longrope": {
        "short_factor": [1.0 + 0.01 * i for i in range(SIZE // 2)],
        "long_factor": [1.5 + 0.5 * i for i in range(SIZE // 2)],
        **ORIGINAL,
    },
}


def config_of(rope_type: str, theta: float = 10000.0) -> Any:
    return transformers.LlamaConfig(
        head_dim=SIZE,
        max_position_embeddings=16384,
        rope_parameters={"rope_type": rope_type, "rope_theta": theta, **TYPES[rope_type]},
    )


def rotated_by_transformers(config: Any, keys: Any, positions: Any, length: int) -> Any:
    """`keys` `[layers, tokens, heads, size]` as Llama would cache them in a prompt of `length`."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    module = LlamaRotaryEmbedding(config)
    cosine, sine = module(keys.float(), torch.arange(length)[None])
    cosine, sine = cosine[:, positions].to(keys.dtype), sine[:, positions].to(keys.dtype)
    by_head = keys.transpose(1, 2)
    return apply_rotary_pos_emb(by_head, by_head, cosine, sine)[1].transpose(1, 2)


def rotated_by_table(rope: RopeParameters, keys: Any, positions: Any) -> Any:
    """The same from the engine's table, as complex numbers in float64."""
    cosine, sine = (part.double() for part in rotary_table(positions, rope, keys.dtype))
    half, wide = rope.rotary_dim // 2, keys.double()
    if rope.interleaved:
        real, imaginary = wide[..., 0 : 2 * half : 2], wide[..., 1 : 2 * half : 2]
    else:
        real, imaginary = wide[..., :half], wide[..., half : 2 * half]
    turned = torch.complex(real, imaginary) * torch.complex(cosine, sine)[:, None, :]
    parts = [turned.real, turned.imag]
    joined = torch.stack(parts, -1).flatten(-2) if rope.interleaved else torch.cat(parts, -1)
    return torch.cat([joined, wide[..., 2 * half :]], -1).to(keys.dtype)


def scattered(count: int, limit: int) -> Any:
    return torch.randperm(limit, generator=torch.Generator().manual_seed(3))[:count].sort().values


@pytest.mark.parametrize("rope_type", TYPES)
@pytest.mark.parametrize("length", [4000, 12000])
def test_moved_key_is_the_key_of_its_new_position(rope_type: str, length: int) -> None:
    config = config_of(rope_type)
    rope = rope_from_config(config.to_dict(), max_model_len_tokens=length)
    old, new = scattered(300, length), torch.arange(300)
    keys = torch.randn(2, 300, 3, SIZE, generator=torch.Generator().manual_seed(1))
    source = rotated_by_transformers(config, keys, old, length)
    expected = rotated_by_transformers(config, keys, new, length)
    # transformers divides the frequency where vLLM divides the position: at an
    # angle of 3,000 rad the two round 2e-4 rad apart. All others agree fully.
    tolerance = 2e-3 if rope_type == "linear" else 4e-6
    moved = rerotate(source, old, new, rope)
    torch.testing.assert_close(moved, expected, rtol=0, atol=tolerance)
    # The must-miss: a table that is a little wrong is seen.
    other = rope_from_config(config_of(rope_type, 10100.0).to_dict(), max_model_len_tokens=length)
    assert (rerotate(source, old, new, other) - expected).abs().max() > 0.1


def test_exact_far_out_where_the_true_angle_is_not() -> None:
    rope = RopeParameters("default", 500000.0, SIZE, SIZE, 131072)
    old = torch.arange(130000, 130064)
    new = torch.arange(64)
    keys = torch.randn(1, 64, 2, SIZE, generator=torch.Generator().manual_seed(1))
    source, expected = rotated_by_table(rope, keys, old), rotated_by_table(rope, keys, new)
    assert (rerotate(source, old, new, rope) - expected).abs().max() < 2e-6
    true = (new - old).double()[:, None] / 500000.0 ** (torch.arange(0, SIZE, 2).double() / SIZE)
    half = SIZE // 2
    cosine, sine = true.cos()[:, None], true.sin()[:, None]
    by_true_angle = source[..., :half] * cosine - source[..., half:] * sine
    assert (by_true_angle - expected[..., :half]).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rope_type", ["default", "yarn"])
def test_half_precision_undoes_the_rounded_table(rope_type: str, dtype: Any) -> None:
    rope = rope_from_config(config_of(rope_type).to_dict())
    old, new = scattered(300, 4000), torch.arange(300)
    keys = torch.randn(1, 300, 2, SIZE, generator=torch.Generator().manual_seed(2)).to(dtype)
    source, expected = rotated_by_table(rope, keys, old), rotated_by_table(rope, keys, new)
    unit = torch.finfo(dtype).eps
    size = expected.float().reshape(-1).abs().max()
    error = (rerotate(source, old, new, rope).float() - expected.float()).abs()
    assert error.max() <= 2 * unit * size  # the source's rounding, turned, and the result's
    # On the whole better than undoing an unrounded rotation would be.
    plain = rerotate(source, old, new, rope, table_dtype=torch.float32).float() - expected.float()
    assert error.square().mean() < plain.square().mean()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [SIZE, 8])
def test_pairing_and_partial_rotation(interleaved: bool, rotary_dim: int) -> None:
    rope = RopeParameters("default", 10000.0, SIZE, rotary_dim, 1024, interleaved)
    old, new = scattered(64, 1024), torch.arange(64)
    keys = torch.randn(2, 64, 3, SIZE, generator=torch.Generator().manual_seed(4))
    source, expected = rotated_by_table(rope, keys, old), rotated_by_table(rope, keys, new)
    moved = rerotate(source, old, new, rope)
    torch.testing.assert_close(moved, expected, rtol=0, atol=2e-6)
    assert torch.equal(moved[..., rotary_dim:], keys[..., rotary_dim:])


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [64, 16])
def test_against_vllms_own_rotation(interleaved: bool, rotary_dim: int) -> None:
    pytest.importorskip("vllm", reason="no vLLM: run in the engine environment")
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import get_rope

    rope = RopeParameters("default", 10000.0, 64, rotary_dim, 2048, interleaved)
    fields = {"rope_theta": 10000.0, "partial_rotary_factor": rotary_dim / 64}
    with set_current_vllm_config(VllmConfig()):
        engine = get_rope(64, 2048, not interleaved, fields, torch.float32)
    old, new = scattered(100, 2048), torch.arange(100)
    keys = torch.randn(100, 3 * 64, generator=torch.Generator().manual_seed(5))
    source, expected = (
        engine.forward_native(at, keys.clone(), keys.clone())[1].view(1, 100, 3, 64)
        for at in (old, new)
    )
    torch.testing.assert_close(rerotate(source, old, new, rope), expected, rtol=0, atol=2e-6)


@given(
    positions=st.lists(st.integers(0, 4095), min_size=1, max_size=12, unique=True),
    rope_type=st.sampled_from(["default", "yarn", "llama3", "dynamic"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=40, deadline=None)
def test_not_moved_means_not_changed(positions: list[int], rope_type: str, dtype: Any) -> None:
    rope = rope_from_config(config_of(rope_type).to_dict())
    here = torch.tensor(sorted(positions))
    keys = torch.randn(2, len(positions), 2, SIZE).to(dtype)
    assert torch.equal(rerotate(keys, here, here, rope), keys)


@given(a=st.integers(0, 9999), b=st.integers(0, 9999), c=st.integers(0, 9999))
@settings(max_examples=40, deadline=None)
def test_moves_compose(a: int, b: int, c: int) -> None:
    rope = rope_from_config(config_of("llama3").to_dict())
    start, between, end = (torch.tensor([p]) for p in (a, b, c))
    keys = torch.randn(1, 1, 2, SIZE)
    twice = rerotate(rerotate(keys, start, between, rope), between, end, rope)
    torch.testing.assert_close(twice, rerotate(keys, start, end, rope), rtol=0, atol=4e-6)


def test_from_one_table_to_another() -> None:
    """Producer with the short factors, consumer with the long ones: still exact."""
    config = config_of("longrope")
    short = rope_from_config(config.to_dict(), max_model_len_tokens=4096)
    long = rope_from_config(config.to_dict(), max_model_len_tokens=16384)
    old, new = scattered(50, 4096), torch.arange(50)
    keys = torch.randn(1, 50, 2, SIZE, generator=torch.Generator().manual_seed(6))
    source = rotated_by_transformers(config, keys, old, 4096)
    expected = rotated_by_transformers(config, keys, new, 16384)
    moved = rerotate(source, old, new, short, target=long)
    torch.testing.assert_close(moved, expected, rtol=0, atol=4e-6)
    assert (rerotate(source, old, new, short) - expected).abs().max() > 0.1


def test_rotation_agrees_with_kvpress(prefill: Any, kvpress: Any) -> None:
    from types import SimpleNamespace

    from kvpress.presses.key_rerotation_press import KeyRerotationPress

    rope = rope_from_config(prefill.model.config.to_dict())
    kept = scattered(60, 160)
    module = SimpleNamespace(rotary_emb=prefill.model.model.rotary_emb, head_dim=16)
    for layer in range(3):
        keys = prefill.keys[layer].transpose(0, 1)[None]
        indices = kept.expand(1, 2, -1)
        theirs = KeyRerotationPress.rerotate_keys(module, indices, keys)[0].transpose(0, 1)
        ours = rerotate(prefill.keys[layer : layer + 1, kept], kept, torch.arange(60), rope)[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


ROPE = RopeParameters("default", 10000.0, SIZE, SIZE, 128)
KEYS, HERE = torch.zeros(1, 4, 2, SIZE), torch.arange(4)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((KEYS[..., :16], HERE, HERE, ROPE), "keys"),
        ((KEYS[0], HERE, HERE, ROPE), "keys"),
        ((KEYS.long(), HERE, HERE, ROPE), "keys"),
        ((KEYS, HERE[:3], HERE[:3], ROPE), "old_positions"),
        ((KEYS, HERE, HERE[:3], ROPE), "new_positions"),
        ((KEYS, HERE + 127, HERE, ROPE), "positions"),
        ((KEYS, HERE, HERE + 127, ROPE), "positions"),
    ],
)
def test_refused(arguments: Any, option: str) -> None:
    with pytest.raises(TransformError) as caught:
        rerotate(*arguments)
    assert caught.value.option == option


def test_another_geometry_is_refused() -> None:
    target = RopeParameters("default", 10000.0, SIZE, SIZE, 128, interleaved=True)
    with pytest.raises(TransformError, match="different elements"):
        rerotate(KEYS, HERE, HERE, ROPE, target=target)
