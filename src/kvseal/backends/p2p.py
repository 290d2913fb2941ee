# SPDX-License-Identifier: Apache-2.0
"""LMCache's `p2p` adapter: the memory of another LMCache server, found by a coordinator.

It is not chosen by `--l2-adapter`: a server that has a coordinator makes one for
each peer. Keys travel as ObjectKeys; bytes by a transfer engine, NIXL (over TCP
or shared memory where there is no GPU) or, from LMCache 0.5.6 on, Mooncake.
Nothing is stored in a peer, so the common contract does not fit.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/p2p_l2_adapter.py`,
`v1/multiprocess/modules/p2p_controller.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import IN_MEMORY, Backend, KeyText
from kvseal.backends.needs import Module
from kvseal.backends.nixl_files import NIXL

MOONCAKE = Module(
    "mooncake.engine",
    "install mooncake-transfer-engine-non-cuda, and libibverbs1 of the distribution",
    load=True,
)
NEEDS = {"nixl": (NIXL,), "mooncake_te": (MOONCAKE,)}
"""What each transfer engine needs; Mooncake's is known to LMCache from 0.5.6 on."""


class P2P(Backend):
    """What other LMCache servers under the same coordinator have in memory."""

    name = "p2p"
    adapter_type = ""
    own_server = "LMCache's coordinator and another LMCache server"
    lasts_over_lmcache = True
    lasts_over_own = False
    packages = True
    apart = "two servers under one coordinator: tests/contract/test_p2p.py"
    limits = "reads the memory of peers, stores nothing there"
    needs = (NIXL,)

    def key_text(self, version: str) -> KeyText:
        """No text: requests to a peer carry the ObjectKey's fields."""
        return IN_MEMORY


def arguments(port: int, coordinator_url: str, engine: str = "nixl") -> tuple[str, ...]:
    """Return what an LMCache server is started with to be a peer, with its transfers at `port`."""
    url = f"127.0.0.1:{port}"
    return (
        *("--coordinator-url", coordinator_url, "--coordinator-advertise-ip", "127.0.0.1"),
        *("--p2p-advertise-url", url, "--p2p-listen-url", url),
        *("--p2p-transfer-engine", engine),
    )
