# SPDX-License-Identifier: Apache-2.0
"""LMCache server: objects of variants carry a seal in L2, and one that doesn't fit is a miss.

Attached where the storage manager makes an L2 adapter, below a serializer, so
that the seal is over the bytes that are stored, and above whatever an adapter
wraps itself. `added/transform_sealed_adapter.py` has what is done and
`added/transform_seal.py` the form. Ordinary objects are stored as without it.

In 0.5.4 and 0.5.5 the buffer of a load that failed is readable until it is
deleted: a request that comes in between hits what it holds, and 0.5.4's store
controller may write that to L2 and so keep it in L1. There the buffer is now
deleted without becoming readable, for all keys, as in 0.5.6.

In all versions the `s3` adapter writes an object that is longer than asked for
over what lies behind it in L1, as a sealed one is for a server that has seals
switched off. There it now stops at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from kvseal.codemods.added import source_of
from kvseal.codemods.anchor import Anchor, Replacement, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, instead, line

ADDED = (
    "transform_seal",
    "transform_seal_loads",
    "transform_seal_stores",
    "transform_sealed_adapter",
)
MANAGER = "lmcache/v1/distributed/storage_manager.py"
S3 = "lmcache/v1/distributed/l2_adapters/s3_l2_adapter.py"
PREFETCH = "lmcache/v1/distributed/storage_controllers/prefetch_controller.py"

IMPORT = """
from lmcache.v1 import transform_sealed_adapter
"""
ATTACH = """
# kvseal: what L2 gives back of a variant is checked.
transform_sealed_adapter.attach(adapter, config, {manager})
"""
DELETE = """
# kvseal: at no time readable; nobody knows what it holds.
l1_mgr.delete(failed_keys, force=True)
"""
WRITE = """
# kvseal: what is longer than asked for stops at the end.
room = max(0, mem_obj.get_size() - offset)
ctypes.memmove(data_ptr + offset, chunk, min(len(chunk), room))
"""


def _nothing(node: cst.BaseStatement) -> Replacement:
    del node
    return cst.FlattenSentinel([])


def _anchors(version: str) -> dict[str, tuple[Anchor, ...]]:
    newest = version == "0.5.6"
    description = "manager.get_l1_memory_desc()" if newest else "self._l1_memory_desc"
    manager = "manager" if newest else "self._l1_manager"
    made = f"adapter: L2AdapterInterface = create_l2_adapter(config, {description})"
    anchors: dict[str, tuple[Anchor, ...]] = {
        MANAGER: (
            line("", "from lmcache.logging import init_logger", after(IMPORT)),
            line("StorageManager._build_l2_adapter", made, after(ATTACH.format(manager=manager))),
        ),
        S3: (
            line(
                "S3L2Adapter._get_request.on_body",
                "ctypes.memmove(data_ptr + offset, chunk, len(chunk))",
                instead(WRITE),
            ),
        ),
    }
    if not newest:
        scope = "PrefetchController._finish_request"
        anchors[PREFETCH] = (
            line(scope, "l1_mgr.finish_write(failed_keys)", instead(DELETE)),
            line(scope, "l1_mgr.delete(failed_keys)", _nothing),
        )
    return anchors


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made, and four added ones (see `Codemod.rewrite`)."""
    absent = ("transform_sealed_adapter",)
    edited = {
        path: rewrite_source(path, sources[path], anchors, absent=absent)
        for path, anchors in _anchors(distribution.release).items()
    }
    return edited | {f"lmcache/v1/{name}.py": source_of(name) for name in ADDED}


CODEMOD = Codemod(
    name="lmcache_payload_seal",
    summary="LMCache seals variants' objects in L2 and takes one that doesn't fit for a miss",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(MANAGER, S3),
    rewrite=rewrite,
    edited_in={"0.5.4": (PREFETCH,), "0.5.5": (PREFETCH,)},
)
