# SPDX-License-Identifier: Apache-2.0
"""Writes what LMCache's server says in `/status` of KV caches that its SDK can't read whole.

LMCache's own classes make the documents, without a server and without vLLM:
Python with torch and LMCache, then `python make.py`. LMCache 0.5.4, 0.5.5 and
0.5.6 write the same bytes.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import torch
from lmcache.v1.gpu_connector.utils import LayoutHints
from lmcache.v1.multiprocess.group_view import EngineGroupInfo
from lmcache.v1.multiprocess.modules.lmcache_driven_transfer import LMCacheDrivenTransferModule

try:
    contexts = importlib.import_module("lmcache.v1.platform.cpu.cache_context")
except ImportError:  # 0.5.6
    contexts = importlib.import_module("lmcache.v1.platform.devices.cpu.cache_context")

BLOCKS, BLOCK, HEADS, SIZE, LAYERS = 16, 32, 2, 64, 2


def engine(*groups: EngineGroupInfo, heads: int = HEADS, layers: int = LAYERS, world: int = 1):
    """One rank's registration: a packed CPU cache of `layers` layers with `heads` KV heads."""
    caches = [torch.zeros(BLOCKS, heads, BLOCK, 2 * SIZE) for _ in range(layers)]
    context = contexts.CPUCacheContext(
        [SimpleNamespace(to_tensor=lambda cache=cache: cache) for cache in caches],
        64,
        layout_hints=LayoutHints(kv_layout="HND"),
        engine_group_infos=list(groups),
        separate_object_groups=len(groups) > 1,
    )
    return SimpleNamespace(model_name="/m", world_size=world, cache_context=context)


def group(*layers: int, number: int = 0, window: int = -1) -> EngineGroupInfo:
    return EngineGroupInfo(number, layers, tokens_per_block=BLOCK, sw_size_tokens=window)


def status(*engines):
    module = object.__new__(LMCacheDrivenTransferModule)
    module.context_entries_snapshot = lambda: dict(enumerate(engines, 1))
    return module.report_status()


DOCUMENTS = {
    "whole": status(engine(group(0, 1))),
    "tensor-parallel-2": status(*[engine(group(0, 1), heads=1, world=2) for _ in "12"]),
    "pipeline-parallel-2": status(
        engine(group(0, 1), world=2), engine(group(0), layers=1, world=2)
    ),
    "one-of-two-servers": status(engine(group(0, 1), heads=1)),
    "sliding-window": status(engine(group(0), group(1, number=1, window=64))),
    "shared-layers": status(engine(group(0))),
}

for name, document in DOCUMENTS.items():
    path = Path(__file__).with_name(f"{name}.json")
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
