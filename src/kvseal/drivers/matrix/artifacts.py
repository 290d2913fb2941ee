# SPDX-License-Identifier: Apache-2.0
"""Make the artifacts of the matrix from KV that real engines computed.

Two prompts of one length are prefilled, their KV and queries taken out, and
transformed in the ways the table names. Source B is source A with other tokens
at the positions that A's transform drops, so that both keep the same tokens.
Called once a run; the same artifacts then go into every cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from kvseal.compaction.compacted import Compacted
from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.snapkv import SnapKV
from kvseal.compaction.snapkv_artifact import rope_part, snapkv_artifact
from kvseal.engines.sdk import KVCacheSDK
from kvseal.errors import EngineError
from kvseal.identity import Format, KVArtifact, seal_legacy
from kvseal.identity.scope import QUERY_SCOPED, REQUEST_LOCAL
from kvseal.models.directory import ModelDirectory
from kvseal.spec.sections import Matrix
from kvseal.workload.matrix import ARTIFACTS

Seal = Callable[[], KVArtifact]


@dataclass(frozen=True)
class Made:
    """One artifact of the table, its KV in canonical form.

    keys, values: `[layers, tokens, kv_heads, head_size]`, `tokens` whole chunks.
    seal: gives its identity, another one each time if it is request-local; None
        for ordinary KV.
    """

    name: str
    keys: torch.Tensor
    values: torch.Tensor
    token_ids: tuple[int, ...]
    source_token_ids: tuple[int, ...]
    source_variant: str = ""
    seal: Seal | None = None

    def sealed(self) -> KVArtifact:
        """Return it with its identity.

        Raises:
            ValueError: it is ordinary KV.
        """
        if self.seal is None:
            raise ValueError(f"{self.name} is ordinary KV")
        return self.seal()

    @property
    def kind(self) -> str:
        """Ordinary, snapkv, legacy or chained."""
        return ARTIFACTS[self.name].kind if self.name in ARTIFACTS else "snapkv"


@dataclass(frozen=True)
class Topic:
    """A source prompt of the mixed traffic, its transform, and that of another query.

    source: whole chunks; tail: the rest of the prompt; other_variant is never stored.
    """

    source: tuple[int, ...]
    tail: tuple[int, ...]
    made: Made
    artifact: KVArtifact
    other_variant: str

    @property
    def literal(self) -> list[int]:
        """The tokens that the transform keeps, as a prompt."""
        return [*self.made.token_ids, *self.tail]


@dataclass(frozen=True)
class FixedSelection(SnapKV):
    """SnapKV's gathering and rotating at positions that are given, whatever the queries say."""

    positions: tuple[int, ...] = ()
    name: ClassVar[str] = "fixed-selection"

    def select(self, *_: Any, **__: Any) -> torch.Tensor:
        """Return the given positions."""
        return torch.tensor(self.positions)


@dataclass(frozen=True)
class Prefilled:
    """What an engine computed for a prompt's whole chunks."""

    token_ids: tuple[int, ...]
    keys: torch.Tensor
    values: torch.Tensor
    queries: torch.Tensor


class Workshop:
    """Makes artifacts of one model on one engine."""

    def __init__(
        self,
        matrix: Matrix,
        model: ModelDirectory,
        sdk: KVCacheSDK,
        rope: RopeParameters,
        prefill: Callable[[Sequence[int], str], None],
    ) -> None:
        """`prefill` computes the KV of token IDs under a salt and returns when it is stored."""
        self._matrix = matrix
        self._sdk = sdk
        self._rope = rope
        self._prefill = prefill
        kv = sdk.geometry.kv
        self._chunk = sdk.chunk_size_tokens
        self._format = Format(
            model=model.name,
            model_revision=model.revision,
            kv_layout=sdk.layout.name,
            dtype=str(kv.dtype).removeprefix("torch."),
            rope=rope_part(rope),
            kv_heads=kv.kv_heads,
            head_size=kv.head_size,
            layers=kv.layers,
            tensor_parallel=sdk.geometry.tensor_parallel,
        )

    def make(
        self, prompt_a: Sequence[int], prompt_b: Sequence[int], names: Collection[str]
    ) -> dict[str, Made]:
        """Return the artifacts of these names, which are some of the table's."""
        source = len(prompt_a) // self._chunk * self._chunk
        a = self.computed(prompt_a, "kvseal-source-a")
        half = self._snapkv(self._matrix.drop_percent)
        quarter = self._snapkv((100 + self._matrix.drop_percent) // 2)
        of_a = self._applied(half, a, a.queries)
        kept = tuple(of_a.retained_positions.tolist())
        mixed = [
            prompt_a[place] if place in set(kept) or place >= source else prompt_b[place]
            for place in range(len(prompt_a))
        ]
        fixed = FixedSelection(half.drop_percent, half.window_tokens, half.kernel_tokens, kept)
        tail = list(prompt_a[source:])

        def literal() -> Prefilled:
            return self.computed([*of_a.token_ids, *tail], "kvseal-literal")

        def of_b(name: str) -> Made:
            b = self.computed(mixed, "kvseal-source-b")
            return self._made(name, fixed, b, b.queries)

        def of_other_query(name: str) -> Made:
            queries = self.computed(prompt_b, "kvseal-query-b").queries
            return self._made(name, half, a, queries)

        def chained(name: str) -> Made:
            parent = self._made("snapkv-a", half, a, a.queries)
            again = Prefilled(parent.token_ids, parent.keys, parent.values, a.queries)
            return self._made(name, half, again, a.queries, parent=parent.sealed().variant)

        recipes: dict[str, Callable[[str], Made]] = {
            "ordinary-a": lambda name: _ordinary(name, a),
            "literal-a": lambda name: _ordinary(name, literal()),
            "snapkv-a": lambda name: self._made(name, half, a, a.queries),
            "snapkv-a-query-b": of_other_query,
            "snapkv-a-quarter": lambda name: self._made(name, quarter, a, a.queries),
            "fixed-a": lambda name: self._made(name, fixed, a, a.queries),
            "fixed-b": of_b,
            "chained-a": chained,
            "local-a": lambda name: self._made(name, half, a, a.queries),
            "local-a-again": lambda name: self._made(name, half, a, a.queries),
            "legacy-a": lambda name: self._legacy(name, of_a, a),
            "legacy-a-again": lambda name: self._legacy(name, of_a, a),
        }
        return {name: recipe(name) for name, recipe in recipes.items() if name in names}

    def topics(
        self, prompt_of_other_query: Sequence[int], prompts: Sequence[Sequence[int]]
    ) -> Iterator[Topic]:
        """Yield the topics of the mixed traffic, one a prompt, as they are asked for."""
        half = self._snapkv(self._matrix.drop_percent)
        other = self.computed(prompt_of_other_query, "kvseal-other-query")
        for number, prompt in enumerate(prompts):
            name = f"mixed-{number}"
            source = self.computed(prompt, f"kvseal-{name}")
            own = self._made(name, half, source, source.queries)
            another = self._made(name, half, source, other.queries)
            yield Topic(
                source=source.token_ids,
                tail=tuple(prompt[len(source.token_ids) :]),
                made=own,
                artifact=own.sealed(),
                other_variant=another.sealed().variant,
            )

    def computed(self, token_ids: Sequence[int], salt: str) -> Prefilled:
        """Prefill token IDs under a salt and take KV and queries of the whole chunks out."""
        self._prefill(token_ids, salt)
        whole = list(token_ids)[: len(token_ids) // self._chunk * self._chunk]
        found = self._sdk.retrieve_kv(whole, salt)
        if found is None or found[0].shape[1] != len(whole):
            raise EngineError(
                "LMCache gave back less KV than was prefilled",
                value=0 if found is None else found[0].shape[1],
                expected=f"{len(whole)} tokens",
                remedy="read the logs of this run",
            )
        return Prefilled(tuple(whole), *found, self._sdk.retrieve_queries(whole, salt))

    def _snapkv(self, drop_percent: int) -> SnapKV:
        return SnapKV(drop_percent, self._matrix.window_tokens, self._matrix.kernel_tokens)

    def _applied(self, how: SnapKV, source: Prefilled, queries: torch.Tensor) -> Compacted:
        tokens = len(source.token_ids)
        return how.apply(
            queries[:, -tokens:] if queries.shape[1] > tokens else queries,
            source.keys,
            source.values,
            source.token_ids,
            self._rope,
            chunk_tokens=self._chunk,
        )

    def _made(
        self,
        name: str,
        how: SnapKV,
        source: Prefilled,
        queries: torch.Tensor,
        *,
        parent: str = "",
    ) -> Made:
        compacted = self._applied(how, source, queries)
        local = name in ARTIFACTS and ARTIFACTS[name].local

        def seal() -> KVArtifact:
            return snapkv_artifact(
                compacted,
                how,
                queries=queries,
                source_token_ids=source.token_ids,
                format=self._format,
                chunk_tokens=self._chunk,
                scope_kind=REQUEST_LOCAL if local else QUERY_SCOPED,
                source_variant=parent,
            )

        return Made(
            name,
            compacted.keys,
            compacted.values,
            tuple(compacted.token_ids),
            source.token_ids,
            parent,
            seal,
        )

    def _legacy(self, name: str, compacted: Compacted, source: Prefilled) -> Made:
        packed = self._sdk.layout.pack(compacted.keys, compacted.values)

        def seal() -> KVArtifact:
            return seal_legacy(
                packed,
                compacted.token_ids,
                source_token_ids=source.token_ids,
                format=self._format,
                implementation="a modifier that returns a tuple",
            )

        return Made(
            name,
            compacted.keys,
            compacted.values,
            tuple(compacted.token_ids),
            source.token_ids,
            "",
            seal,
        )


def _ordinary(name: str, source: Prefilled) -> Made:
    return Made(name, source.keys, source.values, source.token_ids, source.token_ids)
