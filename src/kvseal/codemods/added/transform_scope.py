# SPDX-License-Identifier: Apache-2.0
"""Scopes of transformed KV on a server, added by kvseal: which are allowed, and their leases.

`LMCACHE_TRANSFORM_SCOPES` (default `rq`) are the scope letters this server
takes; a key of another one is refused with ValueError before it is looked up or
stored. A request-local (`r`) variant is leased to one request stream: its
entries live in L1 only, for `LMCACHE_TRANSFORM_LEASE_SECONDS` (default 3600)
from the first write, or until the stream ends the lease. After that they can't
be read or written, and those that nobody is reading are deleted. No clock but
the monotonic one, no thread of its own; `kvseal` is not needed where this is
installed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmcache.v1 import transform_identity

SCOPES_VARIABLE = "LMCACHE_TRANSFORM_SCOPES"
LEASE_VARIABLE = "LMCACHE_TRANSFORM_LEASE_SECONDS"
DEFAULT_SCOPES = "rq"
DEFAULT_LEASE_SECONDS = 3600.0
MAXIMUM_ENDED = 65536
"""How many ended leases are remembered, so that a late write finds them ended."""


def allowed_scopes() -> str:
    """Return the scope letters that this server takes."""
    text = os.environ.get(SCOPES_VARIABLE, DEFAULT_SCOPES)
    if set(text) - set("rqpg"):
        raise ValueError(f"{SCOPES_VARIABLE}={text!r}, expected letters of r, q, p and g")
    return text


def lease_seconds() -> float:
    """Return how long a request-local variant may live at most."""
    text = os.environ.get(LEASE_VARIABLE, str(DEFAULT_LEASE_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{LEASE_VARIABLE}={text!r}, expected a positive number of seconds")
    return seconds


def variant_of(model_name: str) -> str:
    """Return the variant in a key's model name, "" for ordinary KV."""
    if transform_identity.RESERVED not in model_name:
        return ""
    return transform_identity.split(model_name)[1]


def is_local(model_name: str) -> bool:
    """Return whether keys of this model name are request-local."""
    return variant_of(model_name).startswith("r")


def check_allowed(model_name: str) -> None:
    """Refuse keys of a scope that this server does not take."""
    variant = variant_of(model_name)
    if variant and variant[0] not in allowed_scopes():
        raise ValueError(
            f"variant {variant!r} has a scope that this server does not take: "
            f"{SCOPES_VARIABLE} is {allowed_scopes()!r}"
        )


def refuse_local_name(model_name: str) -> None:
    """Refuse a request-local entry's name, or one of a forbidden scope."""
    check_allowed(model_name)
    if is_local(model_name):
        raise ValueError(f"{model_name!r} is request-local and stays on its server")


def refuse_local(keys: Iterable[Any]) -> None:
    """Refuse to hand request-local entries, or those of a forbidden scope, to another server."""
    for key in keys:
        refuse_local_name(key.model_name)


def names_local(value: Any) -> bool:
    """Return whether a request-local key is somewhere in the arguments of a call."""
    if isinstance(value, Mapping):
        return any(names_local(item) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(names_local(item) for item in value)
    name = getattr(value, "model_name", None)
    if isinstance(name, str):
        return is_local(name)
    parts = (getattr(value, part, None) for part in ("keys", "key_groups"))
    return any(names_local(part) for part in parts if part is not None)


@dataclass
class _Lease:
    ends_at: float
    keys: set[Any] = field(default_factory=set)


class Leases:
    """The request-local variants of one L1: when each ends and which keys it has."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        allowed_scopes()
        self._seconds = lease_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, _Lease] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()
        self._to_delete: set[Any] = set()

    def may_write(self, key: Any) -> bool:
        """Return whether `key` may be written now; the first write begins the lease."""
        variant = variant_of(key.model_name)
        if not variant.startswith("r"):
            return True
        with self._lock:
            if self._is_over(variant):
                return False
            lease = self._running.get(variant)
            if lease is None:
                lease = self._running[variant] = _Lease(self._clock() + self._seconds)
            lease.keys.add(key)
        return True

    def may_read(self, key: Any) -> bool:
        """Return whether `key` may be read now."""
        variant = variant_of(key.model_name)
        if not variant.startswith("r"):
            return True
        with self._lock:
            return not self._is_over(variant)

    def end(self, variant: str) -> list[Any]:
        """End the lease of `variant`, also one that has not begun; return its keys, to delete."""
        if transform_identity.scope(variant) != "r":
            raise ValueError(f"variant {variant!r} is not request-local and has no lease")
        with self._lock:
            lease = self._running.get(variant)
            self._end(variant)
            return list(lease.keys) if lease is not None else []

    def due(self) -> list[Any]:
        """End the leases whose time is over; return all keys that are still to delete."""
        with self._lock:
            now = self._clock()
            for variant in [v for v, lease in self._running.items() if lease.ends_at <= now]:
                self._end(variant)
            while self._ended and next(iter(self._ended.values())) <= now:
                self._ended.popitem(last=False)
            return list(self._to_delete)

    def deleted(self, keys: Iterable[Any]) -> None:
        """Forget keys that are deleted, or were not there any more."""
        with self._lock:
            self._to_delete.difference_update(keys)

    def status(self) -> dict[str, Any]:
        """Return counts and limits, without a variant's text: who knows it may end its lease."""
        with self._lock:
            return {
                "allowed_scopes": allowed_scopes(),
                "lease_seconds": self._seconds,
                "leases": len(self._running),
                "entries_to_delete": len(self._to_delete),
            }

    def _is_over(self, variant: str) -> bool:
        lease = self._running.get(variant)
        return variant in self._ended or (lease is not None and lease.ends_at <= self._clock())

    def _end(self, variant: str) -> None:
        lease = self._running.pop(variant, None)
        if lease is not None:
            self._to_delete |= lease.keys
        self._ended[variant] = self._clock() + self._seconds
        self._ended.move_to_end(variant)
        while len(self._ended) > MAXIMUM_ENDED:
            self._ended.popitem(last=False)
