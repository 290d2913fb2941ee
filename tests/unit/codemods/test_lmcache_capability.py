# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvseal.codemods import (
    lmcache_capability,
    lmcache_connector_variant,
    lmcache_key_variant,
    lmcache_layout_lookup,
    lmcache_sdk_variant,
    lmcache_transform_identity,
)

if TYPE_CHECKING:
    from conftest import LMCacheCopy

BEFORE = (
    lmcache_transform_identity.CODEMOD,
    lmcache_key_variant.CODEMOD,
    lmcache_layout_lookup.CODEMOD,
    lmcache_connector_variant.CODEMOD,
)
CODEMOD = lmcache_capability.CODEMOD


def test_it_applies_once_and_reverts(alters_nothing_else: Callable[..., None]) -> None:
    alters_nothing_else(CODEMOD, *BEFORE)


# The connector's half is tested with the connector, `test_lmcache_connector_variant.py`.
SERVER_AND_SDK = """
import json
from types import SimpleNamespace as NS
from lmcache.sdk import context as module
from lmcache.v1.multiprocess.modules.management import ManagementModule

V = "q1" + "b" * 32
out = {}
manager = object.__new__(ManagementModule)
manager.__dict__.update(_experimental_transfer=["transfer_query"], _liveness_targets=[])
out["experimental"] = manager.get_experimental()
out["status"] = manager.report_status()
manager._liveness_targets = [NS(tracked_instance_count=lambda: 2)]
manager.__dict__.update(_reaper=None, _reap_timeout=1.0, _reap_grace=1.0)
out["status with workers"] = manager.report_status()

asked = []
def get(url, timeout):
    asked.append(url)
    return NS(raise_for_status=lambda: None, json=lambda: answer)
module.requests = NS(get=get, RequestException=OSError)

def context():
    made = object.__new__(module.LMCacheSDKContext)
    made.__dict__.update(_model_name="m", _http_url="http://s", _mq_timeout=1.0, _world_size=1,
                         world_size=1, _num_kv_readers=1)
    return made

def key(made, variant):
    try:
        return made._create_key([1, 2], 0, 2, "r", variant=variant).model_name
    except module.LMCacheSDKError as error:
        return f"refused: {error}"

for name, answer in (("old", {}), ("odd", []), ("null", {"capabilities": None}),
                     ("other scope", {"capabilities": ["transform_identity_v1",
                                                       "transform_identity_v1:r"]}),
                     ("new", out["status"])):
    asked.clear()
    made = context()
    out[name] = [key(made, ""), key(made, V), key(made, V), len(asked)]
print(json.dumps(out))
"""


def test_a_server_announces_variants_and_the_sdk_asks(lmcache: LMCacheCopy) -> None:
    lmcache.apply([*BEFORE, CODEMOD, lmcache_sdk_variant.CODEMOD])
    out = lmcache.run(SERVER_AND_SDK)
    name = "transform_identity_v1"
    announced = [name, *(f"{name}:{letter}" for letter in "rqpg")]
    assert out["experimental"] == ["transfer_query", *announced]
    assert out["status"] == {"capabilities": announced}
    assert out["status with workers"]["capabilities"] == announced
    assert out["status with workers"]["worker_liveness"]["tracked_instances"] == 2
    for server in ("old", "odd", "null", "other scope"):
        ordinary, *named, _ = out[server]
        assert ordinary == "m"
        assert all(one.startswith("refused: variant") for one in named), server
    assert out["new"] == ["m", *["m##tv1-q1" + "b" * 32] * 2, 1]
