# SPDX-License-Identifier: Apache-2.0
"""Everything that fixes a rotary table, and the types that are understood here.

Pure data, no torch. `rope_config` reads it from a model's `config.json`,
`rotary_table` turns it into numbers; equal values mean equal tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.errors import TransformError

ScalingValue = float | bool | tuple[float, ...]

# Fields that vLLM 0.28.0 reads for each type, in three groups: required,
# optional, and known to Hugging Face but without effect on vLLM's tables.
ROPE_FIELDS: dict[str, tuple[frozenset[str], frozenset[str], frozenset[str]]] = {
    "default": (frozenset(), frozenset(), frozenset()),
    "linear": (frozenset({"factor"}), frozenset(), frozenset()),
    "dynamic": (frozenset(), frozenset({"factor", "alpha", "max_trained_positions"}), frozenset()),
    "llama3": (
        frozenset(
            {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
        ),
        frozenset(),
        frozenset(),
    ),
    "yarn": (
        frozenset({"factor", "original_max_position_embeddings"}),
        frozenset(
            {
                "beta_fast",
                "beta_slow",
                "truncate",
                "extrapolation_factor",
                "attn_factor",
                "apply_yarn_scaling",
            }
        ),
        frozenset({"attention_factor", "mscale", "mscale_all_dim", "finetuned"}),
    ),
    "longrope": (
        frozenset({"short_factor", "long_factor", "original_max_position_embeddings"}),
        frozenset({"short_mscale", "long_mscale"}),
        frozenset({"factor", "attention_factor"}),
    ),
}
SUPPORTED_ROPE_TYPES = tuple(ROPE_FIELDS)


@dataclass(frozen=True)
class RopeParameters:
    """Everything that fixes an engine's rotary table; equal values mean equal tables.

    `head_size` and `rotary_dim` count elements (the first `rotary_dim` of a
    head are rotated), `max_position_embeddings` and `max_model_len_tokens`
    positions. `interleaved` pairs elements (0, 1), (2, 3) … as GPT-J does;
    otherwise element i is paired with i + rotary_dim / 2. `scaling` holds the
    fields of the type, sorted by name. `max_model_len_tokens` is the engine's
    own limit and stands for longrope only, where it picks the table.
    """

    rope_type: str
    theta: float
    head_size: int
    rotary_dim: int
    max_position_embeddings: int
    interleaved: bool = False
    scaling: tuple[tuple[str, ScalingValue], ...] = ()
    max_model_len_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.rope_type not in ROPE_FIELDS:
            raise unsupported("rope_type", self.rope_type)
        if not 0 < self.rotary_dim <= self.head_size or self.rotary_dim % 2:
            raise TransformError(
                "the rotated part of a head must be an even number of its elements",
                option="rotary_dim",
                value=self.rotary_dim,
                expected=f"even, from 2 to head_size ({self.head_size})",
            )
        if self.rope_type == "longrope" and self.max_model_len_tokens is None:
            raise TransformError(
                "longrope has two tables and vLLM picks one by its own length limit",
                option="max_model_len_tokens",
                expected="the --max-model-len that the engine runs with",
                remedy="pass max_model_len_tokens",
            )

    def number(self, name: str, default: float | None = None) -> float:
        """The numeric scaling field `name`; KeyError when absent without default."""
        value = dict(self.scaling).get(name, default)
        if value is None or isinstance(value, tuple):
            raise KeyError(name)
        return value

    def vector(self, name: str) -> tuple[float, ...]:
        """The per-frequency scaling field `name`."""
        value = dict(self.scaling)[name]
        if not isinstance(value, tuple):
            raise KeyError(name)
        return value


def unsupported(key: str, value: object, remedy: str | None = None) -> TransformError:
    return TransformError(
        "keys of this model can't be re-rotated exactly here",
        option=key,
        value=value,
        expected=f"one rotary embedding for all layers, of type {', '.join(SUPPORTED_ROPE_TYPES)}",
        remedy=remedy,
    )
