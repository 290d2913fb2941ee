# SPDX-License-Identifier: Apache-2.0
"""An LMCacheEngine whose engine-side buffer is one tensor, given with each call as `kv`.

LMCache's own stand-in for a GPU connector copies nothing. Imports LMCache when
called, never before; `process_surface` is the only caller.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from kvseal.errors import PrerequisiteError


def make_engine(
    *,
    model_name: str,
    layers: int,
    kv_heads: int,
    head_size: int,
    dtype: torch.dtype,
    chunk_tokens: int,
    l1_gib: float,
) -> Any:
    """Return a running engine that keeps KV in LocalCPUBackend alone; its `close` ends it.

    `kv` is [2, layers, tokens, kv_heads x head_size].

    Raises:
        PrerequisiteError: LMCache can't be imported.
    """
    # LMCache reads both: its usage report, and the seed of its hashes, which
    # would otherwise differ after a restart and make every lookup a miss.
    os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
    os.environ.setdefault("PYTHONHASHSEED", "0")
    try:
        from lmcache.utils import mock_up_broadcast_fn, mock_up_broadcast_object_fn
        from lmcache.v1.cache_engine import LMCacheEngine
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.token_database import ChunkedTokenDatabase
    except ImportError as error:
        raise PrerequisiteError(
            f"LMCache can't be imported: {error}", option="lmcache", remedy="install it"
        ) from None
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=chunk_tokens,
        local_cpu=True,
        max_local_cpu_size=l1_gib,
        save_unfull_chunk=False,
        pre_caching_hash_algorithm="sha256_cbor",
    )
    metadata = LMCacheMetadata(
        model_name=model_name,
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=dtype,
        kv_shape=(layers, 2, chunk_tokens, kv_heads, head_size),
        chunk_size=chunk_tokens,
    )
    engine = LMCacheEngine(
        config,
        metadata,
        ChunkedTokenDatabase(config, metadata),
        _connector(layers, kv_heads * head_size),
        mock_up_broadcast_fn,
        mock_up_broadcast_object_fn,
    )
    engine.post_init()
    return engine


def _connector(layers: int, width: int) -> Any:
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface

    class TensorConnector(GPUConnectorInterface):
        def to_gpu(self, memory_obj: Any, start: int, end: int, **given: Any) -> None:
            given["kv"][:, :, start:end].copy_(memory_obj.tensor)

        def from_gpu(self, memory_obj: Any, start: int, end: int, **given: Any) -> None:
            memory_obj.tensor.copy_(given["kv"][:, :, start:end])

        def batched_to_gpu(
            self, memory_objs: Any = None, starts: Any = None, ends: Any = None, **given: Any
        ) -> None:
            for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
                self.to_gpu(memory_obj, start, end, **given)

        def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **given: Any) -> None:
            for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
                self.from_gpu(memory_obj, start, end, **given)

        def get_shape(self, num_tokens: int) -> torch.Size:
            return torch.Size([2, layers, num_tokens, width])

    return TensorConnector()
