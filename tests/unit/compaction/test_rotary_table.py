# SPDX-License-Identifier: Apache-2.0
"""Our tables are vLLM's own, bit for bit, for every type and dtype."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")

from kvseal.compaction.rope_parameters import RopeParameters  # noqa: E402
from kvseal.compaction.rotary_table import (  # noqa: E402
    attention_scale,
    inverse_frequencies,
    rotary_table,
    table_positions,
)
from kvseal.errors import TransformError  # noqa: E402

SHORT, LONG = [1.0 + 0.01 * i for i in range(16)], [1.5 + 0.5 * i for i in range(16)]
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "dynamic trained": {"factor": 4.0, "max_trained_positions": 1024},
    "dynamic alpha": {"alpha": 100.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "llama3 no blend": {
        "factor": 8.0,
        "low_freq_factor": 2.0,
        "high_freq_factor": 2.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 512},
    "yarn tuned": {
        "factor": 2.0,
        "original_max_position_embeddings": 700,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attn_factor": 1.3,
        "extrapolation_factor": 0.9,
    },
    "yarn unscaled": {
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "apply_yarn_scaling": False,
    },
    "longrope": {
        "short_factor": SHORT,
        "long_factor": LONG,
        "original_max_position_embeddings": 512,
    },
    "longrope mscale": {
        "short_factor": SHORT,
        "long_factor": LONG,
        "original_max_position_embeddings": 512,
        "short_mscale": 1.1,
        "long_mscale": 1.25,
    },
}
MAX_POSITIONS = 2048


def parameters(case: str, max_model_len: int = 2048, interleaved: bool = False) -> RopeParameters:
    rope_type = case.split(maxsplit=1)[0]
    return RopeParameters(
        rope_type=rope_type,
        theta=10000.0,
        head_size=40,
        rotary_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        interleaved=interleaved,
        scaling=tuple(
            (name, tuple(value) if isinstance(value, list) else value)
            for name, value in sorted(CASES[case].items())
        ),
        max_model_len_tokens=max_model_len if rope_type == "longrope" else None,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("max_model_len", [512, 2048])
@pytest.mark.parametrize("case", CASES)
def test_table_is_vllms(
    case: str, max_model_len: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm", reason="no vLLM: run in the engine environment")
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.layers.rotary_embedding import phi3_long_rope_scaled_rope

    # The one engine setting that a table depends on, without starting an engine.
    limit = SimpleNamespace(model_config=SimpleNamespace(max_model_len=max_model_len))
    monkeypatch.setattr(phi3_long_rope_scaled_rope, "get_current_vllm_config", lambda: limit)
    monkeypatch.setattr(rotary_embedding, "_ROPE_DICT", {})
    rope = parameters(case, max_model_len)
    with set_current_vllm_config(VllmConfig()):
        engine = rotary_embedding.get_rope(
            rope.head_size,
            MAX_POSITIONS,
            True,
            {
                "rope_type": rope.rope_type,
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.8,
                **CASES[case],
            },
            dtype,
        )
    if rope.rope_type == "longrope":
        both = engine.long_short_cos_sin_cache
        expected = both[512:] if max_model_len > 512 else both[:512]
    else:
        expected = engine.cos_sin_cache
    assert table_positions(rope) == len(expected)
    cosine, sine = rotary_table(torch.arange(len(expected)), rope, dtype)
    assert cosine.dtype == dtype
    assert torch.equal(torch.cat([cosine, sine], -1), expected)


# default has no such function in transformers, and these fields are vLLM's alone.
ONLY_VLLM = {"default", "dynamic trained", "dynamic alpha", "yarn tuned"}


@pytest.mark.parametrize("case", [name for name in CASES if name not in ONLY_VLLM])
def test_frequencies_are_those_of_transformers(case: str) -> None:
    transformers = pytest.importorskip("transformers", reason="no transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = parameters(case)
    config = transformers.LlamaConfig(
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": rope.rope_type, "rope_theta": 10000.0, **CASES[case]},
    )
    frequencies, scale = ROPE_INIT_FUNCTIONS[rope.rope_type](config, seq_len=MAX_POSITIONS)
    ours = inverse_frequencies(rope)
    if rope.rope_type == "linear":  # there the position is divided instead
        ours = ours / 4.0
    torch.testing.assert_close(ours, frequencies, rtol=1e-6, atol=0)
    if not {"apply_yarn_scaling", "long_mscale"} & CASES[case].keys():
        assert attention_scale(rope) == pytest.approx(scale, rel=1e-7)


def test_yarn_without_growth_is_not_scaled() -> None:
    rope = RopeParameters(
        "yarn",
        10000.0,
        32,
        32,
        512,
        scaling=(("factor", 1.0), ("original_max_position_embeddings", 512.0)),
    )
    assert attention_scale(rope) == 1.0


def test_longrope_needs_a_factor_for_each_pair() -> None:
    rope = RopeParameters(
        "longrope",
        10000.0,
        64,
        64,
        2048,
        scaling=parameters("longrope").scaling,
        max_model_len_tokens=2048,
    )
    with pytest.raises(TransformError, match="one factor for each rotated pair"):
        inverse_frequencies(rope)


@pytest.mark.parametrize(
    "positions",
    [
        torch.tensor([0, MAX_POSITIONS]),
        torch.tensor([-1, 3]),
        torch.tensor([0.0, 1.0]),
        torch.tensor([[0, 1]]),
    ],
)
def test_positions_outside_the_table(positions: Any) -> None:
    with pytest.raises(TransformError) as caught:
        rotary_table(positions, parameters("default"), torch.float32)
    assert caught.value.option == "positions"
