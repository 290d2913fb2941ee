# SPDX-License-Identifier: Apache-2.0
"""L2 adapters that seal transformed KV, added by kvseal: wrong bytes are a load that failed.

What comes back without the seal of its key and payload (cut off, changed,
written under another key, by a server without seals) is reported as the adapter
itself reports a load that failed, with a log line and a count in `/status`. It is
not deleted: another server may know better, and an audit wants to see it.

The adapter stays the object that it was: what stores, loads, ends and reports is
replaced on it, so that whatever else LMCache asks is answered by it as before.
Ordinary keys are handed on in the same calls with the same buffers. Peers' memory
(P2P) is read as it is and has no seals. `transform_seal` has the form,
`transform_seal_stores` and `transform_seal_loads` the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmcache.logging import init_logger
from lmcache.v1 import transform_seal
from lmcache.v1.transform_seal_loads import SealedLoads
from lmcache.v1.transform_seal_stores import SealedStores, Workshop

logger = init_logger(__name__)

STATUS = "transform_payload_seal"


def attach(adapter: Any, config: Any, l1_manager: Any) -> None:
    """Make `adapter` seal what it stores of variants and check what it loads of them."""
    from lmcache.v1.distributed.l2_adapters.config import get_type_name_for_config

    kind = get_type_name_for_config(config)
    if kind == "p2p" or not transform_seal.enabled():
        reason = "peers have no seals" if kind == "p2p" else f"{transform_seal.VARIABLE} is off"
        logger.info("Transformed KV is not sealed in L2 adapter %s: %s", kind, reason)
        _report(adapter, lambda: {"enabled": False, "reason": reason})
        return
    for fd in (adapter.get_store_event_fd(), adapter.get_load_event_fd()):
        if "eventfd" not in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise ValueError(
                f"L2 adapter {kind} signals with something else than an eventfd, which seals of "
                f"transformed KV need; change it, or set {transform_seal.VARIABLE}=off"
            )
    shop = Workshop(l1_manager._memory_manager)
    stores, loads = SealedStores(adapter, shop), SealedLoads(adapter, shop)
    close = adapter.close

    def close_all() -> None:
        """Finish what is being sealed or checked, close the adapter, then free the buffers."""
        shop.pool.shutdown()
        close()
        stores.free()
        loads.free()

    adapter.submit_store_task = stores.submit
    adapter.pop_completed_store_tasks = stores.pop_completed
    adapter.submit_load_task = loads.submit
    adapter.query_load_result = loads.query
    adapter.close = close_all
    _report(adapter, lambda: {"enabled": True, **shop.counts})
    logger.info("Transformed KV is sealed in L2 adapter %s", kind)


def _report(adapter: Any, state: Any) -> None:
    report = adapter.report_status
    adapter.report_status = lambda: {**report(), STATUS: state()}
