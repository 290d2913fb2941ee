# SPDX-License-Identifier: Apache-2.0
"""The parts of a transform manifest, each a frozen value that checks itself.

What each field is for stands in docs/formats/transform-manifest.md. Put
together and held against each other by kvseal.identity.manifest.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvseal.identity.fields import (
    Pairs,
    check_choice,
    check_count,
    check_decimal,
    check_hex,
    check_pairs,
    check_parts,
    check_scaling,
    check_text,
    refused,
)
from kvseal.identity.variant import RESERVED, parse_variant

GRANULARITIES = ("all", "layer", "layer_head")
"""One selection of tokens for everything, one a layer, or one a layer and KV head."""

DENSE = "dense"
UNMOVED = "unmoved"
EXPLICIT = "explicit"
UNSTATED = "unstated"
POSITION_RULES = (DENSE, UNMOVED, EXPLICIT, UNSTATED)
"""New positions are 0, 1, 2 …; the old ones; others, in order; or nobody says."""


@dataclass(frozen=True)
class Algorithm:
    """Which transform ran: its name, the version of its rules, and the code that ran them."""

    name: str
    version: int
    implementation: str

    def __post_init__(self) -> None:
        check_text(self.name, "algorithm.name")
        check_count(self.version, "algorithm.version")
        check_text(self.implementation, "algorithm.implementation")


@dataclass(frozen=True)
class Source:
    """The complete prefix that the source KV was computed over, dropped tokens included.

    prefix_sha256: see kvseal.identity.arrays.source_sha256.
    tokens: how many tokens it has.
    parent: variant text of the source if it was transformed itself, else empty.
    """

    prefix_sha256: str
    tokens: int
    parent: str

    def __post_init__(self) -> None:
        check_hex(self.prefix_sha256, "source.prefix_sha256")
        check_count(self.tokens, "source.tokens")
        if type(self.parent) is not str:
            raise refused("field must be text", "source.parent", self.parent, "empty or a variant")
        if self.parent:
            parse_variant(self.parent, at="source.parent")


@dataclass(frozen=True)
class Retained:
    """Which positions of the source are left.

    count: tokens left, in each layer and head.
    positions_sha256: over the positions as uint32, in row order where there are several rows.
    granularity: whether layers or heads have a selection of their own.
    """

    count: int
    positions_sha256: str
    granularity: str

    def __post_init__(self) -> None:
        check_count(self.count, "retained.count")
        check_hex(self.positions_sha256, "retained.positions_sha256")
        check_choice(self.granularity, GRANULARITIES, "retained.granularity")


@dataclass(frozen=True)
class PositionMap:
    """Where the retained keys stand now; shaped and digested as the retained positions are."""

    rule: str
    new_positions_sha256: str

    def __post_init__(self) -> None:
        check_choice(self.rule, POSITION_RULES, "position_map.rule")
        check_hex(self.new_positions_sha256, "position_map.new_positions_sha256")


@dataclass(frozen=True)
class Query:
    """The queries that chose, where a transform looks at queries at all.

    digest: over their bytes, as the transform defines it.
    window_tokens: how many of the last tokens they are of.
    """

    digest: str
    window_tokens: int

    def __post_init__(self) -> None:
        check_hex(self.digest, "query.digest")
        check_count(self.window_tokens, "query.window_tokens")


@dataclass(frozen=True)
class Rope:
    """The rotary embedding under which the keys stand.

    type: default, linear, dynamic, llama3, yarn, longrope …, or none.
    theta: decimal text.
    scaling: everything else that fixes the table, by name, as text; long lists by digest.
    """

    type: str
    theta: str
    scaling: Pairs

    def __post_init__(self) -> None:
        check_text(self.type, "format.rope.type")
        check_decimal(self.theta, "format.rope.theta")
        check_pairs(self.scaling, "format.rope.scaling")
        for name, value in self.scaling:
            check_scaling(value, f"format.rope.scaling.{name}")


@dataclass(frozen=True)
class TensorParallel:
    """How ranks share the KV heads: split while they suffice, then repeated.

    size: number of ranks.
    kv_heads_per_rank: KV heads that each holds.
    """

    size: int
    kv_heads_per_rank: int

    def __post_init__(self) -> None:
        check_count(self.size, "format.tensor_parallel.size")
        check_count(self.kv_heads_per_rank, "format.tensor_parallel.kv_heads_per_rank")


@dataclass(frozen=True)
class Format:
    """What the bytes of the artifact are.

    Sizes are the whole model's; `kv_layout` is a name of kvseal.layouts, `dtype`
    the element type of the stored KV.
    """

    model: str
    model_revision: str
    kv_layout: str
    dtype: str
    rope: Rope
    kv_heads: int
    head_size: int
    layers: int
    tensor_parallel: TensorParallel

    def __post_init__(self) -> None:
        check_parts(self, "format")
        for name in ("model", "model_revision", "kv_layout", "dtype"):
            check_text(getattr(self, name), f"format.{name}")
        if RESERVED in self.model.lower():
            raise refused(
                "the model's own name holds the mark of a variant",
                "format.model",
                self.model,
                "the name without it",
            )
        for name in ("kv_heads", "head_size", "layers"):
            check_count(getattr(self, name), f"format.{name}")
        ranks = self.tensor_parallel
        held = ranks.size * ranks.kv_heads_per_rank
        if ranks.kv_heads_per_rank > self.kv_heads or held % self.kv_heads:
            raise refused(
                "the ranks don't hold each KV head equally often",
                "format.tensor_parallel",
                f"{ranks.size} ranks with {ranks.kv_heads_per_rank}",
                f"together {self.kv_heads} heads or a multiple",
            )

    def rows(self, granularity: str) -> tuple[int, ...]:
        """Outer axes of the position lists: none, `[layers]` or `[layers, kv_heads]`."""
        return {"all": (), "layer": (self.layers,)}.get(granularity, (self.layers, self.kv_heads))
