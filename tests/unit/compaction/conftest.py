# SPDX-License-Identifier: Apache-2.0
"""One small random Llama, prefilled once, with everything its attention saw.

The engine environment has torch and transformers, the controller's has not:
there every module but test_rope_config says so and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Prefill:
    """queries, keys, values `[layers, tokens, heads, head_size]`; seen: what each layer got."""

    model: Any
    token_ids: list[int]
    queries: Any
    keys: Any
    values: Any
    seen: list[dict[str, Any]]


@pytest.fixture(scope="session")
def make_prefill() -> Callable[..., Prefill]:
    """Prefill a Llama with random weights; keywords change its configuration."""
    torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")
    transformers = pytest.importorskip("transformers", reason="no transformers: as above")
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    def make(tokens: int = 160, **changes: Any) -> Prefill:
        torch.manual_seed(7)
        settings = {
            "vocab_size": 211,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 1024,
            # Large enough that attention is peaked and answers are not all alike.
            "initializer_range": 0.5,
            "eos_token_id": None,
            "bos_token_id": None,
            "pad_token_id": None,
        }
        config = transformers.LlamaConfig(**{**settings, **changes})
        model = transformers.LlamaForCausalLM(config).eval()
        seen: list[dict[str, Any]] = []
        hooks = [
            layer.self_attn.register_forward_pre_hook(
                lambda module, args, kwargs: seen.append({"module": module, **kwargs}),
                with_kwargs=True,
            )
            for layer in model.model.layers
        ]
        ids = torch.randint(0, config.vocab_size, (1, tokens))
        with torch.inference_mode():
            cache = model(ids, use_cache=True).past_key_values
            queries = []
            for record in seen:
                hidden, (cos, sin) = record["hidden_states"], record["position_embeddings"]
                flat = record["module"].q_proj(hidden)
                heads = flat.view(1, tokens, config.num_attention_heads, -1).transpose(1, 2)
                queries.append(apply_rotary_pos_emb(heads, heads, cos, sin)[0][0].transpose(0, 1))
        for hook in hooks:
            hook.remove()
        return Prefill(
            model=model,
            token_ids=ids[0].tolist(),
            queries=torch.stack(queries),
            keys=torch.stack([layer.keys[0].transpose(0, 1) for layer in cache.layers]),
            values=torch.stack([layer.values[0].transpose(0, 1) for layer in cache.layers]),
            seen=seen,
        )

    return make


@pytest.fixture(scope="session")
def prefill(make_prefill: Callable[..., Prefill]) -> Prefill:
    """160 tokens through 3 layers, 6 query heads on 2 KV heads."""
    return make_prefill()


@pytest.fixture
def kvpress() -> Iterator[Any]:
    """kvpress, with the attention functions that its import replaces put back afterwards."""
    pytest.importorskip("transformers", reason="no transformers: run in the engine environment")
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    original = dict(ALL_ATTENTION_FUNCTIONS.items())
    module = pytest.importorskip(
        "kvpress", reason="no kvpress 0.5.5: install requirements/engine-dev"
    )
    yield module
    for name, function in original.items():
        ALL_ATTENTION_FUNCTIONS[name] = function
