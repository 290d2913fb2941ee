# SPDX-License-Identifier: Apache-2.0
"""Seeded KV and queries of a small model that nobody trained, without any engine.

Stands in the place of an engine's SDK where artifacts are made by the real
transforms (kvseal.drivers.matrix.artifacts.Workshop). Used by the scripts
beside this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.identity import TensorParallel
from kvseal.layouts import KVGeometry, layout_for

LAYERS, HEADS, HEAD_SIZE = 2, 2, 16


class SyntheticEngine:
    """What a Workshop asks of an engine's SDK, answered with seeded numbers.

    A row of KV depends on every token up to its own, as a model's does.
    """

    def __init__(self, chunk_tokens: int, seed: int) -> None:
        self.chunk_size_tokens = chunk_tokens
        self._seed = seed
        self.rope = RopeParameters("default", 10000.0, HEAD_SIZE, HEAD_SIZE, 2048)
        kv = KVGeometry(LAYERS, HEADS, HEAD_SIZE, 32, torch.float32)
        self.geometry = SimpleNamespace(kv=kv, tensor_parallel=TensorParallel(1, HEADS))
        self.layout = layout_for("NL_X_TWO_NB_BS_NH_HS", device="cuda", geometry=kv)

    def retrieve_kv(self, token_ids: Sequence[int], _: str) -> tuple[Any, Any]:
        """Return keys and values of token IDs."""
        return self._rows("keys", token_ids), self._rows("values", token_ids)

    def retrieve_queries(self, token_ids: Sequence[int], _: str) -> Any:
        """Return queries of token IDs."""
        return self._rows("queries", token_ids)

    def _rows(self, what: str, token_ids: Sequence[int]) -> Any:
        state, rows = hashlib.sha256(f"{self._seed} {what}".encode()), []
        for token in token_ids:
            state.update(token.to_bytes(4, "little"))
            draw = torch.Generator().manual_seed(int.from_bytes(state.digest()[:7], "little"))
            rows.append(torch.randn(LAYERS, HEADS, HEAD_SIZE, generator=draw))
        return torch.stack(rows, dim=1)
