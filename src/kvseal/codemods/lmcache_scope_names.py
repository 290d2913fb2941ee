# SPDX-License-Identifier: Apache-2.0
"""A part of `lmcache_scope_enforcement`: nobody else learns a request-local entry's name.

The text of a request-local variant is all that it takes to end its lease or to
read it. So the trace of storage calls leaves calls with such keys out, and requests
by tokens, by which a coordinator and an operator find, pin, prefetch and delete
entries, refuse such a name before it is kept or sent on. A prefetch that names a
malformed variant is a bad request too, which was an internal error.

Source: LMCache 0.5.4 to 0.5.6, `mp_observability/trace/recorder.py`,
`multiprocess/cache_control/key_resolver.py`, `…/prefetch_service.py`.
"""

from __future__ import annotations

from kvseal.codemods.anchor import Anchor
from kvseal.codemods.syntax import after, before, first_in_body, function, line

TRACE = "lmcache/v1/mp_observability/trace/recorder.py"
RESOLVER = "lmcache/v1/multiprocess/cache_control/key_resolver.py"
PREFETCH = "lmcache/v1/multiprocess/cache_control/prefetch_service.py"

IMPORT = """
from lmcache.v1 import transform_scope
"""
NOT_TRACED = """
if transform_scope.names_local(event.metadata.get("args")):
    # kvseal: a call concerns one request, and this one stays on this server.
    return
"""
NOT_RESOLVED = """
# kvseal: a request-local entry is for the stream that stored it.
transform_scope.refuse_local([ipc_key])
"""
NOT_FETCHED = """
# kvseal: before anything is looked up for a name that can't be fetched.
try:
    transform_scope.refuse_local_name(model_name)
except ValueError as error:
    raise InvalidRequest(str(error)) from None
"""
_KEYS = "from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey"
_HASHES = "chunk_hashes = token_hasher.compute_chunk_hashes(list(token_ids))"
_SUBMIT = ("model_name", "world_size", "token_ids", "cache_salt", "source_tier", "target_tier")


def name_anchors(version: str) -> dict[str, tuple[Anchor, ...]]:
    """Return the anchors where a request-local name would be written down or sent on."""
    resolver = "_resolve_ipc_key_and_hashes" if version == "0.5.6" else "resolve_object_keys"
    return {
        TRACE: (
            line("", "from lmcache.logging import init_logger", after(IMPORT)),
            function(
                "TraceRecorder", "_on_trace_call", ("self", "event"), first_in_body(NOT_TRACED)
            ),
        ),
        RESOLVER: (
            line("", _KEYS, before(IMPORT)),
            line(resolver, _HASHES, before(NOT_RESOLVED)),
        ),
        PREFETCH: (
            line("", "from lmcache.v1.distributed.api import Tier", before(IMPORT)),
            function("PrefetchService", "submit", ("self", *_SUBMIT), first_in_body(NOT_FETCHED)),
        ),
    }
