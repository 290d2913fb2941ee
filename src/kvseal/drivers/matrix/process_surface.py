# SPDX-License-Identifier: Apache-2.0
"""LMCache's own engine in this process, with its memory as the only place that keeps KV.

The same classes that vLLM drives through LMCache's connector without a server:
LMCacheEngine, its token database and LocalCPUBackend. In place of vLLM's paged
buffer stands one tensor, so no vLLM serves and no GPU is needed. LMCache writes
a chunk once: one that is there already would be kept silently in place of the
new one, so a store onto it is an error here.

This engine knows no cache salt. Whoever wants cells apart restarts it between
them. LMCache sets the start method of `multiprocessing` to `spawn` for the
whole process. Called by the matrix driver.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kvseal.drivers.matrix.process_engine import make_engine
from kvseal.errors import PrerequisiteError, StoreError

VARIANT_KEY = "lmcache.variant"


@dataclass(frozen=True)
class ProcessAnswer:
    """What a lookup found, and keys and values of it, each [layers, tokens, kv_heads, head_size].

    `payload` is None where nothing was found.
    """

    found_tokens: int
    payload: tuple[torch.Tensor, torch.Tensor] | None


class ProcessSurface:
    """One LMCacheEngine; a context manager."""

    def __init__(
        self,
        *,
        model_name: str,
        layers: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype,
        chunk_tokens: int,
        l1_gib: float,
    ) -> None:
        """Note what the engine is to keep.

        model_name: as it stands in keys. chunk_tokens: LMCache's chunk.
        l1_gib: its memory; all of it is taken at once.
        """
        self._settings: dict[str, Any] = {
            "model_name": model_name,
            "layers": layers,
            "kv_heads": kv_heads,
            "head_size": head_size,
            "dtype": dtype,
            "chunk_tokens": chunk_tokens,
            "l1_gib": l1_gib,
        }
        self._shape = (layers, kv_heads, head_size)
        self._dtype = dtype
        self._chunk_tokens = chunk_tokens
        self._asked = 0
        self._engine: Any = None

    def __enter__(self) -> ProcessSurface:
        """Make the engine.

        Raises:
            PrerequisiteError: LMCache can't be imported.
        """
        self._engine = make_engine(**self._settings)
        return self

    def __exit__(self, *error: object) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    @property
    def patched(self) -> bool:
        """Whether this LMCache's keys can name a variant."""
        from lmcache.utils import CacheEngineKey

        module = importlib.util.find_spec("lmcache.v1.transform_identity")
        return module is not None and hasattr(CacheEngineKey, "variant")

    def restart(self) -> None:
        """Close the engine and make a new one, whose memory is empty."""
        self.__exit__()
        self.__enter__()

    def store(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        token_ids: Sequence[int],
        *,
        variant: str = "",
    ) -> int:
        """Store all whole chunks of keys and values; return how many tokens that are.

        keys, values: [layers, tokens, kv_heads, head_size] of the surface's dtype.

        Raises:
            PrerequisiteError: a variant, and an LMCache without variants.
            StoreError: shapes that don't fit, less than a chunk, a chunk that is
                there already, a variant that LMCache refuses, or less stored.
        """
        configs = self._configs(variant)
        self._check_shapes(keys, values, len(token_ids))
        tokens = len(token_ids) // self._chunk_tokens * self._chunk_tokens
        if not tokens:
            raise StoreError(
                "nothing to store: less than one chunk",
                value=len(token_ids),
                expected=f"at least {self._chunk_tokens} tokens",
            )
        whole = list(token_ids[:tokens])
        with _refusals(variant):
            present = self._chunks_present(whole, configs)
            if present:
                raise StoreError(
                    "chunks of these tokens are stored already, and LMCache would keep those",
                    value=f"{present} chunks",
                    expected="none",
                    remedy="restart the engine first, or store under a variant of its own",
                )
            kv = torch.stack([keys, values]).flatten(3).cpu()
            self._engine.store(whole, kv=kv, request_configs=configs, req_id="store")
            stored = self._chunks_present(whole, configs) * self._chunk_tokens
        if stored != tokens:
            raise StoreError(
                "LMCache stored less than it was given",
                value=f"{stored} tokens",
                expected=f"{tokens} tokens",
                remedy="give it more memory (l1_gib)",
            )
        return tokens

    def ask(self, token_ids: Sequence[int], *, variant: str = "") -> ProcessAnswer:
        """Look the tokens up and retrieve what was found, from the first token on.

        Raises:
            PrerequisiteError: a variant, and an LMCache without variants.
            StoreError: a variant that LMCache refuses, or less retrieved than found.
        """
        configs = self._configs(variant)
        self._asked += 1
        request = f"ask-{self._asked}"
        with _refusals(variant):
            found = self._engine.lookup(
                list(token_ids), lookup_id=request, pin=True, request_configs=configs
            )
        if not found:
            return ProcessAnswer(0, None)
        layers, heads, size = self._shape
        # What LMCache leaves unwritten is no number, and can't equal a payload.
        kv = torch.full((2, layers, found, heads * size), float("nan"), dtype=self._dtype)
        try:
            mask = self._engine.retrieve(
                list(token_ids[:found]), kv=kv, request_configs=configs, req_id=request
            )
        finally:
            self._engine.lookup_unpin(request)
        if int(mask.sum()) != found:
            raise StoreError(
                "LMCache gave back less than it had found",
                value=f"{int(mask.sum())} tokens",
                expected=f"{found} tokens",
            )
        keys, values = kv.unflatten(3, (heads, size))
        return ProcessAnswer(found, (keys, values))

    def _configs(self, variant: str) -> dict[str, str] | None:
        """Return a request's parameters; stock LMCache would drop a variant silently."""
        if not variant:
            return None
        if not self.patched:
            raise PrerequisiteError(
                "this LMCache has no variants and would take the request for an ordinary one",
                option="variant",
                value=variant,
                expected="LMCache with the codemod lmcache_engine_variant",
                remedy="kvseal patch apply",
            )
        return {VARIANT_KEY: variant}

    def _check_shapes(self, keys: torch.Tensor, values: torch.Tensor, tokens: int) -> None:
        layers, heads, size = self._shape
        wanted = (layers, tokens, heads, size)
        for name, part in (("keys", keys), ("values", values)):
            if tuple(part.shape) != wanted or part.dtype != self._dtype:
                raise StoreError(
                    f"{name} are not those of the tokens",
                    value=f"{tuple(part.shape)} {part.dtype}",
                    expected=f"{wanted} {self._dtype}",
                )

    def _chunks_present(self, token_ids: list[int], configs: dict[str, str] | None) -> int:
        """Return how many of the tokens' chunks are stored, in a row or not."""
        chunks = self._engine.token_database.process_tokens(token_ids, request_configs=configs)
        contains = self._engine.storage_manager.contains
        return sum(contains(key) is not None for _, _, key in chunks)


@contextmanager
def _refusals(variant: str) -> Iterator[None]:
    """Turn LMCache's refusal of a variant into a StoreError."""
    try:
        yield
    except ValueError as error:
        raise StoreError(
            f"LMCache refused the request: {error}", option="variant", value=variant
        ) from None
