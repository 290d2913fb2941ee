# SPDX-License-Identifier: Apache-2.0
"""Keys: what stock writes for ordinary keys is what the edited package writes, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kvseal.codemods import lmcache_key_variant, lmcache_layout_lookup, lmcache_transform_identity

if TYPE_CHECKING:
    from conftest import LMCacheCopy

IDENTITY = lmcache_transform_identity.CODEMOD
KEYS = lmcache_key_variant.CODEMOD
LAYOUTS = lmcache_layout_lookup.CODEMOD
V = "r1" + "a" * 32
OTHER = "r1" + "a" * 31 + "b"

ORDINARY = '''
import dataclasses, hashlib, json, pickle
from lmcache.v1.distributed.api import EncodedObjectKey, ObjectKey, ipc_key_to_object_keys
from lmcache.v1.distributed.l2_adapters import fs_l2_adapter, native_connector_l2_adapter
from lmcache.v1.multiprocess.custom_types import (
    IPCCacheServerKey, get_customized_decoder, get_customized_encoder)

def ipc(model, salt="", worker=None):
    return IPCCacheServerKey.from_token_ids(model, 2, worker, [5, 6, 7], 0, 3, "r", salt)

def texts(model, salt="", worker=None):
    """Every text and byte form of the keys of one request."""
    key = ipc(model, salt, worker)
    out = [repr(key), hash(key) == hash(ipc(model, salt, worker)), repr(key.no_worker_id_version()),
           get_customized_encoder(IPCCacheServerKey).encode(key).hex()]
    for group in ipc_key_to_object_keys(key, [bytes(range(32)), b"12345678"], [0, 3]):
        for one in group:
            encoded = one.to_encoded_object_key()
            name = fs_l2_adapter._object_key_to_filename(one)
            out += [repr(one), json.dumps(dataclasses.asdict(encoded)), name,
                    native_connector_l2_adapter._object_key_to_string(one),
                    get_customized_encoder(ObjectKey).encode(one).hex()]
            assert encoded.to_object_key() == one
            assert fs_l2_adapter._filename_to_object_key(name) == one
            assert pickle.loads(pickle.dumps(one)) == one
    return out

def refused(make):
    try:
        return repr(make())
    except ValueError:
        return "refused"

models = ["m", "a/b-c.d_e", "m##query", "m##lmcache-dcp-layout-v1-x", "m#tv1-", "m##t"]
ordinary = {f"{m}|{s}|{w}": texts(m, s, w)
            for m in models for s in ("", "tenant", "##query") for w in (None, 1)}
'''
VARIANTS = """
V, OTHER = {V!r}, {OTHER!r}
decoder = get_customized_decoder(IPCCacheServerKey)
out = dict(ordinary=ordinary, variants={{}}, refused={{}}, wire={{}})
for model in ("m", "a/b", "m##query"):
    own, other, plain = ipc(model + "##tv1-" + V), ipc(model + "##tv1-" + OTHER), ipc(model)
    objects = ipc_key_to_object_keys(own, [b"x" * 32], [0])[0]
    wire = decoder.decode(get_customized_encoder(IPCCacheServerKey).encode(own))
    out["variants"][model] = [
        own.variant, own.no_worker_id_version().variant, plain.variant, wire == own, wire.variant,
        len({{own, other, plain}}), [one.variant for one in objects],
        [one.to_encoded_object_key().variant for one in objects],
        fs_l2_adapter._filename_to_object_key(
            fs_l2_adapter._object_key_to_filename(objects[0])).variant]
    texts(model + "##tv1-" + V, "tenant")
bad = ["m##tv1-", "m##tv1-" + V[:-1], "m##tv1-" + V + "a", "m##tv1-" + V.upper(),
       "m##tv2-" + V, "m##tv1-r2" + V[2:], "m##tv1-x1" + V[2:], "m##TV1-" + V,
       "m##tv1-" + V + "##query", "m##tv1-" + V + "##tv1-" + V, "m##tv1-" + V + chr(10), "a##tv"]
for name in bad:
    frame = get_customized_encoder(IPCCacheServerKey).encode(ipc("m"))
    forged = frame.replace(b"model_name" + bytes([0xA1]) + b"m",
                           b"model_name" + bytes([0xD9, len(name)]) + name.encode())
    assert forged != frame
    out["refused"][name] = [refused(lambda: ipc(name)), refused(lambda: ObjectKey(b"x", name, 1)),
        refused(lambda: EncodedObjectKey("00", name, 1)),
        refused(lambda: decoder.decode(forged)),
        repr(fs_l2_adapter._filename_to_object_key(f"{{name}}@0x00000001@0@00.data"))]
salt = "t##tv1-" + V
out["salts"] = [refused(lambda: ipc("m", salt)), refused(lambda: ObjectKey(b"x", "m", 1, 0, salt)),
                refused(lambda: EncodedObjectKey("00", "m", 1, 0, salt))]
from lmcache.v1.multiprocess.engine_context import LayoutDescRegistry
from lmcache.v1.distributed.api import MemoryLayoutDesc
import torch
registry = LayoutDescRegistry()
layout, query = (MemoryLayoutDesc([torch.Size([n])], [torch.float32]) for n in (1, 2))
registry.register("m", 2, layout)
registry.register("m##query", 2, query)
def find(name):
    return [registry.find(name, 2) is layout, registry.find(name, 2) is query,
            registry.find_group_layout_descs(name, 2)[0] is registry.find(name, 2),
            registry.find_attn_desc(name, 2).world_size]
out["layouts"] = [find(name) for name in
                  ("m", "m##tv1-" + V, "m##query", "m##query##tv1-" + V)]
out["layouts of another"] = [registry.find("n##tv1-" + V, 2) is None,
                             registry.find("m##tv1-" + V, 1) is None,
                             refused(lambda: registry.register("m##tv1-" + V, 2, layout))]
print(json.dumps(out))
"""


@pytest.mark.parametrize("codemod", [IDENTITY, KEYS, LAYOUTS], ids=lambda codemod: codemod.name)
def test_it_applies_once_and_reverts(
    codemod: Any, alters_nothing_else: Callable[..., None]
) -> None:
    alters_nothing_else(codemod, *([] if codemod is IDENTITY else [IDENTITY]))


def test_ordinary_keys_are_those_of_stock_and_variants_are_apart(lmcache: LMCacheCopy) -> None:
    lmcache.apply([])
    stock = lmcache.run(ORDINARY + "print(json.dumps(ordinary))")
    lmcache.apply([IDENTITY, KEYS, LAYOUTS])
    out = lmcache.run(ORDINARY + VARIANTS.format(V=V, OTHER=OTHER))
    assert json.dumps(out["ordinary"]) == json.dumps(stock)
    assert len(stock) == 36
    groups = [V, V]  # two ranks
    for found in out["variants"].values():
        assert found == [V, V, "", True, V, 3, groups, groups, V]
    for name, found in out["refused"].items():
        assert found == ["refused"] * 4 + ["None"], name
    assert out["salts"] == ["refused"] * 3
    assert out["layouts"] == [
        [True, False, True, 2], [True, False, True, 2],
        [False, True, True, 2], [False, True, True, 2],
    ]  # fmt: skip
    assert out["layouts of another"] == [True, True, "refused"]


def test_stock_reads_a_variant_s_entry_as_another_key_than_the_ordinary(
    lmcache: LMCacheCopy,
) -> None:
    """An unedited peer or server fails closed: it misses."""
    lmcache.apply([])
    out = lmcache.run(
        ORDINARY
        + f"""
own, plain = ipc("m##tv1-{V}"), ipc("m")
made = [ipc_key_to_object_keys(key, [b"x" * 32], [0])[0][0] for key in (own, plain)]
names = [fs_l2_adapter._object_key_to_filename(key) for key in made]
read = [fs_l2_adapter._filename_to_object_key(name) for name in names]
print(json.dumps([read == made, made[0] == made[1], names[0] == names[1], own == plain]))
"""
    )
    assert out == [True, False, False, False]
