# SPDX-License-Identifier: Apache-2.0
"""What the counts of one request say: loaded as it had to be, not at all, or not to be known.

Two parties count: the LMCache server what it loaded for a request, vLLM what it
did not compute. In one process there is only the first. With vLLM's own prefix
cache on, vLLM may have more than the server gave it, never less.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kvseal.workload.matrix.case import NATIVE, PROCESS


class Hits(enum.Enum):
    """What was loaded for a request, by the parties that count."""

    NONE = "none"
    WHOLE = "whole"
    PART = "part"
    """Less than a whole hit, and the parties agree."""
    DIFFERS = "differs"
    """The parties disagree, or count more than there is."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Counts:
    """Tokens by the server and by vLLM, None where that party counted nothing."""

    backend: str
    server: int | None
    vllm: int | None

    @property
    def anything(self) -> bool:
        """True when some party counted a loaded token."""
        return bool(self.server) or bool(self.vllm)

    @property
    def unknown(self) -> bool:
        """True when a party that has to count did not."""
        return self.server is None or (self.vllm is None and self.backend != PROCESS)

    def __str__(self) -> str:
        def text(count: int | None) -> str:
            return "an unknown number of" if count is None else str(count)

        if self.backend == PROCESS:
            return f"LMCache found {text(self.server)} tokens"
        return f"the server loaded {text(self.server)} tokens and vLLM counted {text(self.vllm)}"


def read_hits(counts: Counts, whole: int) -> Hits:
    """Return what `counts` say of a request that a whole hit loads `whole` tokens for."""
    if counts.unknown:
        return Hits.UNKNOWN
    server, vllm = counts.server or 0, counts.vllm or 0
    seen = server if counts.backend == PROCESS else vllm
    if counts.backend == NATIVE:
        agreed = server <= vllm
        enough = vllm >= whole
    else:
        agreed = counts.backend == PROCESS or server == vllm
        agreed = agreed and seen <= whole
        enough = seen == whole
    if not agreed:
        return Hits.DIFFERS
    if seen == 0:
        return Hits.NONE
    return Hits.WHOLE if enough else Hits.PART
