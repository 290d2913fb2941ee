# SPDX-License-Identifier: Apache-2.0
"""LMCache's `fault_inject` adapter around `fs`: a share of entries is found and fails to load.

Which ones is decided by a hash over all fields of the key, so it is the
same at every load. An entry that fails is a miss for whoever asked; the contract
runs it with a rate of 0, faults have tests of their own.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/fault_inject_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.folders import running_on
from kvseal.backends.fs import Fs


class FaultInject(Backend):
    """A wrapper that hands every call on to `fs` and drops what a load has brought."""

    name = "fault_inject"
    adapter_type = "fault_inject"
    lasts_over_lmcache = True
    confuses = Fs.confuses
    limits = Fs.limits
    needs = Fs.needs

    def key_text(self, version: str) -> KeyText:
        """What is stored is named by the adapter inside."""
        return Fs().key_text(version)

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Nothing to start: the folder is the store."""
        inner = {"type": Fs.adapter_type, "base_path": str(site.folder)}
        yield running_on(site.folder, {"type": self.adapter_type, "inner": inner, "rate": 0.0})


def failing(adapter: dict[str, object], *, rate: float, seed: int = 0) -> dict[str, object]:
    """Return a configuration around `adapter` under which the share `rate` of its entries fails."""
    return {"type": FaultInject.adapter_type, "inner": adapter, "rate": rate, "seed": seed}
