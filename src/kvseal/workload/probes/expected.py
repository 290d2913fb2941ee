# SPDX-License-Identifier: Apache-2.0
"""How many cached tokens an answer must report when reuse works as documented.

A pure rule of lengths: it looks at no engine. The checkers hold every hit
count to it, and the manifest prints it.
"""

from __future__ import annotations

from kvseal.errors import EvidenceError
from kvseal.spec.contracts import NATIVE, TARGETS
from kvseal.workload.probes.probe import Geometry


def expected_cached(
    target: str, tokens: int, geometry: Geometry, known_prefix: int | None = None
) -> int:
    """Return the cached tokens that a prompt of `tokens` tokens is to report on `target`.

    `known_prefix` is how many of its leading tokens the cache has seen: all of
    them when it is None, none for a cold answer (0), the common prefix for the
    second prompt of a pair. Native caching serves whole blocks and always
    computes the last token's block. A connector serves whole chunks; when those
    are the whole prompt, its last token is computed all the same and one less
    counts.

    Source: vLLM 0.28.0 with LMCache 0.5.4 report 256, 511, 512 and 1280 for
    prompts of 511, 512, 513 and 1500 tokens with chunks of 256; native caching
    1488 for 1500 with blocks of 16.

    Raises:
        EvidenceError: for an unknown target, or lengths that no prompt has.
    """
    if target not in TARGETS:
        raise EvidenceError("no such target", value=target, expected=" or ".join(TARGETS))
    known = tokens if known_prefix is None else known_prefix
    if tokens < 1 or not 0 <= known <= tokens:
        raise EvidenceError(
            "no prompt has these lengths",
            value=f"{known} known of {tokens} tokens",
            expected="1 or more tokens, and 0 to all of them known",
        )
    if target == NATIVE:
        block = geometry.block_tokens
        return min(known, tokens - 1) // block * block
    chunk = geometry.chunk_tokens
    return min(known // chunk * chunk, tokens - 1)
