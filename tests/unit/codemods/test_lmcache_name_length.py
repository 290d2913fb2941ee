# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import (
    lmcache_key_variant,
    lmcache_name_length,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
CODEMOD = lmcache_name_length.CODEMOD

CHECKS = """
import inspect, json, tempfile
import torch
from lmcache.v1 import transform_name
from lmcache.v1.distributed import config
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import _object_key_to_filename
from lmcache.v1.distributed.storage_manager import StorageManager

LAYOUT = MemoryLayoutDesc(shapes=[torch.Size([2, 1, 4, 8])], dtypes=[torch.float32])
QUERY, LOCAL = "##tv1-q1" + "b" * 32, "##tv1-r1" + "a" * 32

def key(mark, salt=60, model="org/model", group=0):
    return ObjectKey(bytes(32), model + mark, 0x01000100, group, "s" * salt)

def lengths():
    keys = [key("", 0), key(QUERY, 3), key(QUERY, 0, "a/b/c"), key("", 1, "m\\u00e9", 300)]
    return [
        [transform_name.file_name_bytes(k), len(_object_key_to_filename(k).encode())]
        for k in keys
    ]

def reserved(adapter, *keys):
    arguments = ["--l1-size-gb", "0.1", "--eviction-policy", "LRU"]
    if adapter:
        arguments += ["--l2-adapter", json.dumps(adapter)]
    sm = StorageManager(config.parse_args(arguments))
    mode = ("new",) if "mode" in inspect.signature(sm.reserve_write).parameters else ()
    found = sm.reserve_write(list(keys), LAYOUT, *mode)
    answer = [k in found for k in keys]
    sm.close()
    return answer

# The longest salt with which a file name still fits, and one more.
fits = 255 - transform_name.file_name_bytes(key(QUERY, 0)) - 1
keys = [key(QUERY, fits), key(QUERY, fits + 1), key(LOCAL, fits + 1), key("", 128)]
fs = {"type": "fs", "base_path": tempfile.mkdtemp()}
native = {"type": "fs_native", "base_path": tempfile.mkdtemp(), "num_workers": 1}
print(json.dumps({
    "lengths": lengths(),
    "fs": reserved(fs, *keys),
    "wrapped": reserved({"type": "fault_inject", "inner": fs, "rate": 0.0}, *keys),
    "fs_native": reserved(native, *keys, key(QUERY, fits - 4)),
    "none": reserved(None, *keys),
}))
"""


@pytest.fixture(scope="module")
def found(lmcache: LMCacheCopy) -> Any:
    """What the patched LMCache reserves, by L2 adapter; one process for all."""
    lmcache.apply([IDENTITY, KEYS, CODEMOD])
    return lmcache.run(CHECKS)


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, IDENTITY, KEYS)


def test_the_length_is_that_of_lmcaches_file_name(found: Any) -> None:
    assert all(ours == theirs for ours, theirs in found["lengths"])


@pytest.mark.parametrize("adapter", ["fs", "wrapped"])
def test_a_variant_whose_file_name_would_not_fit_is_not_stored(found: Any, adapter: str) -> None:
    assert found[adapter] == [True, False, True, True]


def test_the_native_adapter_needs_room_for_its_temporary_name(found: Any) -> None:
    assert found["fs_native"] == [False, False, True, True, True]


def test_without_such_an_adapter_any_length_is_fine(found: Any) -> None:
    assert found["none"] == [True, True, True, True]
