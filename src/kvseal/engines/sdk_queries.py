# SPDX-License-Identifier: Apache-2.0
"""Wait for captured query tensors, and say what is missing instead of timing out.

vLLM hands queries to LMCache after it has answered, and leaves chunks out
without a word in cases that are ordinary operation. Called by kvseal.engines.sdk.

Source: lmcache 0.5.4 lmcache/sdk/qringbuffer.py, and runs on CPU and GPU.
"""

from __future__ import annotations

import time

import torch

from kvseal.engines.geometry import EngineGeometry
from kvseal.engines.sdk_transport import SDKChannel
from kvseal.errors import EvidenceError

POLL_SECONDS = 0.1
REASONS = (
    "the KV of these tokens was in LMCache already, so nothing was stored for them",
    "the prompt was prefilled in several steps (longer than max_num_batched_tokens, or "
    "beside other requests)",
    "vLLM's own prefix cache served some of the tokens",
    "the chunk was completed by decoding",
    "the ring of query blocks was full",
    "vLLM lacks the query-export edit (see: kvseal patch status)",
)
"""Why a chunk may have KV but no queries; each skips the chunk without an error."""


def require_query_ring(geometry: EngineGeometry) -> None:
    """Check that the engine set up query capture at all.

    Raises:
        EvidenceError: when it has no ring of query tensors registered.
    """
    if not geometry.captures_queries:
        raise EvidenceError(
            "the engine has no ring of query tensors registered with the LMCache server",
            option="kv_connector_extra_config lmcache.mp.transfer_intermediate_tensors",
            expected="true, and --enable transfer_query on the server",
            remedy="start vLLM with the option and the query-export edit, then connect again",
        )


def wait_for_queries(
    channel: SDKChannel,
    tokens: list[int],
    cache_salt: str,
    *,
    chunk_size_tokens: int,
    wait_seconds: float,
) -> torch.Tensor:
    """Return the queries of all of `tokens`, a whole number of chunks, as an SDK tensor.

    Raises:
        EvidenceError: when the last chunk is not there after `wait_seconds`;
            names the first chunk that is missing and every known reason.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        packed = channel.retrieve(tokens, cache_salt)
        found = 0 if packed is None else packed.shape[-2]
        if packed is not None and found == len(tokens):
            return packed
        if time.monotonic() >= deadline:
            raise EvidenceError(
                f"captured queries are missing from chunk {found // chunk_size_tokens} on, "
                f"after {wait_seconds} s; known reasons: " + "; ".join(REASONS),
                value=f"{found} of {len(tokens)} tokens, from the start, have queries",
                expected=f"all {len(tokens) // chunk_size_tokens} chunks of {chunk_size_tokens} "
                "tokens (what lies past a gap can't be seen)",
                remedy="send the prompt once, alone, to a cleared cache or under a new cache salt",
            )
        time.sleep(POLL_SECONDS)
