# SPDX-License-Identifier: Apache-2.0
"""The backend without servers: LMCache's in-process engine, as a vLLM would hold it.

There is no vLLM here, so nothing is generated: a hit is what the engine finds,
and the payload it gives back, which is compared as bytes. It has no tenants;
that a cell can't see another's entries is owed to an engine of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvseal.canonical import sha256_hex
from kvseal.drivers.matrix.artifacts import Made
from kvseal.drivers.matrix.process_surface import ProcessSurface
from kvseal.drivers.matrix.surface import Answer, Stored
from kvseal.errors import KvsealError
from kvseal.identity import KVArtifact
from kvseal.models.directory import ModelDirectory
from kvseal.spec.runspec import MatrixSpec
from kvseal.workload.matrix import Act
from kvseal.workload.matrix.case import PROCESS


def payload_digest(keys: torch.Tensor, values: torch.Tensor) -> str:
    """Return the SHA-256 of the bytes of keys, then values, in row order."""
    parts = (part.detach().contiguous().cpu().view(torch.uint8) for part in (keys, values))
    return sha256_hex(b"".join(part.numpy().tobytes() for part in parts))


class InProcessSurface:
    """An LMCache engine in this process; a context manager."""

    backend = PROCESS
    together = False
    """Without salts, cells can only be kept apart by running one after the other."""

    def __init__(self, spec: MatrixSpec, model: ModelDirectory, like: Made) -> None:
        """`like` has the shape and dtype of all artifacts."""
        self._engine = ProcessSurface(
            model_name=model.name,
            layers=like.keys.shape[0],
            kv_heads=like.keys.shape[2],
            head_size=like.keys.shape[3],
            dtype=like.keys.dtype,
            chunk_tokens=spec.lmcache.chunk_size_tokens,
            l1_gib=0.1,
        )

    def __enter__(self) -> InProcessSurface:
        self._engine.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._engine.__exit__(*error)

    def store(self, made: Made, artifact: KVArtifact | None, _: str) -> int:
        """Store all chunks."""
        variant = "" if artifact is None else artifact.variant
        return self._engine.store(made.keys, made.values, made.token_ids, variant=variant)

    def settle(self) -> None:
        """Nothing is under way after a store."""

    def ask(self, token_ids: Sequence[int], *, variant: str, cache_salt: str) -> Answer:
        """Look up and retrieve."""
        try:
            found = self._engine.ask(token_ids, variant=variant)
        except (KvsealError, ValueError) as error:
            return Answer(refusal=str(error))
        payload = None if found.payload is None else payload_digest(*found.payload)
        return Answer(hit_tokens_server=found.found_tokens, payload_sha256=payload)

    def act(self, step: Act, stored: Stored, cache_salt: str) -> str:
        """There is no server to do anything with."""
        raise NotImplementedError(step.kind)

    def found_in_index(self, stored: Stored, cache_salt: str) -> str:
        """There is no server that keeps an index."""
        raise NotImplementedError("index")

    def restart(self, what: str) -> None:
        """Whatever is restarted, it is this process's engine."""
        self._engine.restart()

    def empty(self) -> None:
        """A new engine has nothing."""
        self._engine.restart()
