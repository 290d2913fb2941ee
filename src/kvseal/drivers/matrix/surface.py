# SPDX-License-Identifier: Apache-2.0
"""What the matrix asks of a backend, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvseal.drivers.matrix.artifacts import Made
from kvseal.identity import KVArtifact
from kvseal.workload.matrix import Act


@dataclass(frozen=True)
class Answer:
    """What came of a request. Counts are tokens loaded from the cache, None where nobody counts.

    output_token_ids: of backends with an engine; payload_sha256: of the one without.
    refusal: the error, where there was one, and then nothing else.
    """

    output_token_ids: list[int] | None = None
    payload_sha256: str | None = None
    hit_tokens_vllm: int | None = None
    hit_tokens_server: int | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class Stored:
    """An artifact in a cell's cache: `artifact` is its identity, None for ordinary KV."""

    made: Made
    artifact: KVArtifact | None

    @property
    def identity(self) -> KVArtifact:
        """The artifact with its identity.

        Raises:
            ValueError: it is ordinary KV.
        """
        if self.artifact is None:
            raise ValueError(f"{self.made.name} has no identity here")
        return self.artifact

    @property
    def variant(self) -> str:
        """The variant it was stored under, empty for ordinary KV."""
        return "" if self.artifact is None else self.artifact.variant


class Surface(Protocol):
    """A backend. Refusals are KvsealError; anything else is a defect.

    together: whether the cells of a round can be there side by side.
    """

    backend: str
    together: bool

    def store(self, made: Made, artifact: KVArtifact | None, cache_salt: str) -> int:
        """Store an artifact, under its variant if it has one; return the tokens stored."""
        ...

    def settle(self) -> tuple[int, int] | None:
        """Return once what was stored is where the backend's asks must find it.

        Where memory was emptied for that: how many objects it held before and after.
        """
        ...

    def ask(self, token_ids: Sequence[int], *, variant: str, cache_salt: str) -> Answer:
        """Send one request."""
        ...

    def act(self, step: Act, stored: Stored, cache_salt: str) -> str:
        """Do something else, or look at something; return what was seen.

        Raises:
            KvsealError: it was refused.
        """
        ...

    def found_in_index(self, stored: Stored, cache_salt: str) -> str:
        """Return the one variant that the index has for the artifact's recipe, or "".

        Raises:
            KvsealError: the index holds something that can't be trusted.
        """
        ...

    def restart(self, what: str) -> None:
        """Restart `engine`, `server` or `both`."""
        ...

    def empty(self) -> None:
        """Forget everything stored, before the next round of cells."""
        ...
