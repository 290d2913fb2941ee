# SPDX-License-Identifier: Apache-2.0
"""LMCache server: allowed scopes, and request-local KV that stays in L1 and ends.

Request-local entries are never handed to an L2 adapter, looked up there (a peer
is one), served to a peer or reported to a coordinator or event trace. L1 refuses
to read or write them once their lease is over, and deletes them as soon as no
reader or writer holds them: at the end of the lease, or in the eviction
controller's next turn, a second later. Keys of a scope that the server does not
take are refused where a request becomes object keys. `added/transform_scope.py`
has the rules, and `lmcache_scope_names.py` the places where a name would get out;
ordinary keys pass one test for a substring of their model name.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.added import source_of
from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_scope_names import PREFETCH, RESOLVER, TRACE, name_anchors
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, first_in_body, function, line, loop

SCOPE = "lmcache/v1/transform_scope.py"
LEASE_API = "lmcache/v1/multiprocess/http_apis/transform_api.py"
KEYS = "lmcache/v1/distributed/api.py"
L1 = "lmcache/v1/distributed/l1_manager.py"
MANAGER = "lmcache/v1/distributed/storage_manager.py"
STORE = "lmcache/v1/distributed/storage_controllers/store_controller.py"
EVICTION = "lmcache/v1/distributed/storage_controllers/eviction_controller.py"
P2P = "lmcache/v1/multiprocess/modules/p2p_controller.py"
EVENTS = "lmcache/v1/mp_coordinator/cache_events.py"

IMPORT = """
from lmcache.v1 import transform_scope
"""
CHECK_SCOPE = """
# kvseal: refused before anything is looked up or stored.
transform_scope.check_allowed(ipc_key.model_name)
"""
L1_STATE = """
# kvseal: the request-local variants in this L1 and when each ends.
self._leases = transform_scope.Leases()
"""
L1_READ = """
if not self._leases.may_read(key):
    # kvseal: its lease is over; a reader that holds it already may finish.
    ret[key] = (L1Error.KEY_NOT_EXIST, None)
    continue
"""
L1_WRITE = """
if not self._leases.may_write(key):
    # kvseal: its lease is over; a late store must not begin it anew.
    ret[key] = (L1Error.KEY_NOT_WRITABLE, None)
    continue
"""
L1_METHODS = '''

def end_lease(self, variant: str) -> int:
    """End a request-local variant's lease (kvseal).

    Args:
        variant: Text of a request-local variant.

    Returns:
        How many entries were deleted; those in use follow later.

    Raises:
        ValueError: If the text names no request-local variant.
    """
    return self._delete_leased(self._leases.end(variant))

def expire_leases(self) -> int:
    """Delete the entries of leases that are over, except those in use (kvseal)."""
    return self._delete_leased(self._leases.due())

def lease_status(self) -> dict:
    """Return counts and limits of the leases (kvseal)."""
    return self._leases.status()

def _delete_leased(self, keys: list[ObjectKey]) -> int:
    """Delete keys whose lease is over and forget those that are gone (kvseal)."""
    if not keys:
        return 0
    results = self.delete(keys)
    self._leases.deleted(
        key for key, error in results.items() if error != L1Error.KEY_IS_LOCKED
    )
    return sum(error == L1Error.SUCCESS for error in results.values())
'''
MANAGER_METHODS = '''

def end_lease(self, variant: str) -> int:
    """End a request-local variant's lease in every L1; return how many were deleted (kvseal)."""
    return sum(manager.end_lease(variant) for manager in {managers})

def lease_status(self) -> list[dict]:
    """Return counts and limits of the leases of every L1 (kvseal)."""
    return [manager.lease_status() for manager in {managers}]
'''
STAY_IN_L1 = """
# kvseal: request-local entries stay in L1.
keys = [key for key in keys if not transform_scope.is_local(key.model_name)]
"""
NO_L2_LOOKUP = """
# kvseal: request-local entries are in L1 or nowhere; L2 and peers don't even
# learn their names.
skip_l2 = skip_l2 or any(transform_scope.is_local(key.model_name) for key in {keys})
"""
EXPIRE = """
self._l1_manager.expire_leases()
"""
REFUSE_PEER = """
# kvseal: a peer gets no request-local entry, and releases no lock on one.
transform_scope.refuse_local(keys)
"""
NOT_REPORTED = """
# kvseal: request-local entries are not reported.
entries = [
    entry
    for entry in entries
    if not transform_scope.is_local(entry.key.model_name)
]
"""
LOGGING = "from lmcache.logging import init_logger"


def _anchors(version: str) -> dict[str, tuple[Anchor, ...]]:
    newest = version == "0.5.6"
    manager = "self._l1_managers_by_id.values()" if newest else "(self._l1_manager,)"
    spec_keys = "(key for row in spec.key_groups for key in row.keys)" if newest else "spec.keys"
    strict = "True" if newest else "False"
    key, hashes, groups = "ipc_key", "chunk_hashes", "object_group_ids"
    converters: list[tuple[str, tuple[str, ...]]]
    converters = [("ipc_key_to_object_keys", (key, hashes, groups))]
    if newest:
        grouped = (key, hashes, groups, "group_layout_descs", "attn_desc")
        converters.append(("ipc_key_to_grouped_object_keys", grouped))
    checks = [function("", name, head, first_in_body(CHECK_SCOPE)) for name, head in converters]
    return {
        KEYS: (line("", LOGGING, after(IMPORT)), *checks),
        L1: (
            line("", LOGGING, after(IMPORT)),
            line("L1Manager.__init__", "self._event_bus = get_event_bus()", after(L1_STATE)),
            loop("L1Manager.reserve_read", "key", "keys", first_in_body(L1_READ)),
            loop(
                "L1Manager.reserve_write",
                "(key, is_temp)",
                f"zip(keys, is_temporary, strict={strict})",
                first_in_body(L1_WRITE),
            ),
            function("L1Manager", "is_key_evictable", ("self", "key"), after(L1_METHODS)),
        ),
        MANAGER: (
            line("", LOGGING, after(IMPORT)),
            function(
                "StorageManager",
                "submit_prefetch_task",
                ("self", "spec", "external_request_id", "skip_l2"),
                first_in_body(NO_L2_LOOKUP.format(keys=spec_keys)),
            ),
            function(
                "StorageManager",
                "touch_l1_keys",
                ("self", "keys"),
                after(MANAGER_METHODS.format(managers=manager)),
            ),
        ),
        STORE: (
            line("", LOGGING, after(IMPORT)),
            function(
                "StoreController", "_process_new_keys", ("self", "keys"), first_in_body(STAY_IN_L1)
            ),
        ),
        EVICTION: (line("L1EvictionController.eviction_loop", "time.sleep(1)", after(EXPIRE)),),
        P2P: (
            line("", LOGGING, after(IMPORT)),
            function(
                "P2PController",
                "p2p_lookup_and_lock",
                ("self", "keys", "group_layout_descs"),
                first_in_body(REFUSE_PEER),
            ),
            function(
                "P2PController",
                "p2p_unlock_objects",
                ("self", "keys"),
                first_in_body(REFUSE_PEER),
            ),
        ),
        EVENTS: (
            line("", LOGGING, after(IMPORT)),
            function(
                "CacheEventSubscriber",
                "_record",
                ("self", "event_type", "tier", "backend", "entries", "shared"),
                first_in_body(NOT_REPORTED),
            ),
        ),
    }


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made, and two added ones (see `Codemod.rewrite`)."""
    release = distribution.release
    anchors = _anchors(release) | name_anchors(release)
    absent = ("transform_scope", "expire_leases", "end_lease")
    edited = {
        path: rewrite_source(path, sources[path], anchors[path], absent=absent) for path in anchors
    }
    added = {SCOPE: source_of("transform_scope"), LEASE_API: source_of("transform_api")}
    return edited | added


CODEMOD = Codemod(
    name="lmcache_scope_enforcement",
    summary="LMCache takes allowed scopes only, and request-local KV stays in L1 and ends",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(KEYS, L1, MANAGER, STORE, EVICTION, P2P, EVENTS, TRACE, RESOLVER, PREFETCH),
    rewrite=rewrite,
)
