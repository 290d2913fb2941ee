# SPDX-License-Identifier: Apache-2.0
"""Ask a running LMCache server over HTTP: its settings, contents and counters.

Called by the modules beside it and the drivers; changes nothing but by `clear`,
`delete`, `end_lease`, and what is sent with `answer`. What the counters mean is
in kvseal.engines.lmcache_counters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from kvseal.engines.lmcache_counters import (
    HitCounters,
    events_queued,
    hit_counters,
    parse_samples,
)
from kvseal.errors import EngineError, EvidenceError, PrerequisiteError
from kvseal.identity.scope import LETTERS
from kvseal.identity.variant import parse_variant

CAPABILITY = "transform_identity_v1"
"""What a server announces that knows variants, with `:` and a letter for each scope it takes."""
SETTLE_SECONDS = 5.0
POLL_SECONDS = 0.02
IDLE_TIMES = 3


@dataclass(frozen=True)
class CacheContents:
    """Objects in the server's memory tier (L1); one object is one chunk of one kind."""

    objects: int
    write_locked: int
    read_locked: int
    used_bytes: int
    write_ttl_seconds: float


class LMCacheHTTP:
    """The HTTP side of one LMCache server."""

    def __init__(self, base_url: str, *, timeout_seconds: float = 30.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout = timeout_seconds
        self._session = requests.Session()
        self._chunk_size_tokens: int | None = None

    def config(self) -> dict[str, Any]:
        """The settings the server runs with."""
        return self._json("GET", "/config")

    def status(self) -> dict[str, Any]:
        """The server's state, registered engines included."""
        return self._json("GET", "/status")

    def capabilities(self) -> list[str]:
        """What the server announces beyond stock LMCache, which announces nothing."""
        names = self.status().get("capabilities", [])
        return [str(name) for name in names] if isinstance(names, list) else []

    def require_variant(self, variant: str) -> None:
        """Refuse to go on unless the server says that it takes variants of this scope.

        A server that does not know variants takes a variant's name for that of another
        model, so it is asked before anything is stored, each time: it may have been
        started anew.

        Raises:
            PrerequisiteError: it does not say so.
            EvidenceError: `variant` is no variant text.
        """
        scope = parse_variant(variant).scope
        wanted, known = f"{CAPABILITY}:{LETTERS[scope]}", self.capabilities()
        if wanted not in known:
            raise PrerequisiteError(
                f"this LMCache server does not take {scope} variants; nothing was stored",
                option=f"capabilities in {self.base_url}/status",
                value=known,
                expected=wanted,
                remedy=f"allow {LETTERS[scope]} in the server's LMCACHE_TRANSFORM_SCOPES"
                if CAPABILITY in known
                else "edit its LMCache with `kvseal patch apply` and start it again",
            )

    def chunk_size_tokens(self) -> int:
        """Tokens in one chunk; a running server never changes it."""
        if self._chunk_size_tokens is None:
            self._chunk_size_tokens = int(self.config()["mp"]["chunk_size"])
        return self._chunk_size_tokens

    def contents(self) -> CacheContents:
        """Count what lies in L1 now."""
        l1 = self.status()["storage_manager"]["l1_manager"]
        return CacheContents(
            objects=int(l1["total_object_count"]),
            write_locked=int(l1["write_locked_count"]),
            read_locked=int(l1["read_locked_count"]),
            used_bytes=int(l1["memory_used_bytes"]),
            write_ttl_seconds=float(l1["write_ttl_seconds"]),
        )

    def object_count(self) -> int:
        """Number of objects in L1, reserved ones included."""
        return self.contents().objects

    def wait_unlocked(self, *, timeout_seconds: float = SETTLE_SECONDS) -> CacheContents:
        """Wait until no store or load is under way, and return the contents then.

        Raises:
            EngineError: when something stays locked.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            contents = self.contents()
            if not contents.write_locked and not contents.read_locked:
                return contents
            if time.monotonic() > deadline:
                raise EngineError(
                    f"LMCache objects stay locked after {timeout_seconds} s",
                    value=contents,
                    expected="no store or load under way",
                    remedy="see logs/lmcache.log; a failed transfer keeps its locks for minutes",
                )
            time.sleep(POLL_SECONDS)

    def wait_stored_behind(self, *, timeout_seconds: float = SETTLE_SECONDS) -> None:
        """Wait until all that goes from memory to a second tier is there, or was refused by it.

        Between the moment when LMCache takes keys from its queue and the one when it counts
        them as under way, it reports neither; so it has to be idle several times in a row.

        Raises:
            EngineError: when something stays under way.
        """
        deadline = time.monotonic() + timeout_seconds
        idle = 0
        while idle < IDLE_TIMES:
            controller = self.status()["storage_manager"]["store_controller"]
            waiting = int(controller["pending_keys_count"]), int(controller["in_flight_task_count"])
            idle = 0 if any(waiting) else idle + 1
            if time.monotonic() > deadline:
                raise EngineError(
                    f"stores to LMCache's second tier do not end in {timeout_seconds} s",
                    value=f"{waiting[0]} waiting, {waiting[1]} under way",
                    expected="none",
                    remedy="see the log of the LMCache server, and whether its backend answers",
                )
            time.sleep(POLL_SECONDS)

    def clear(self, *, memory_only: bool = False) -> tuple[CacheContents, CacheContents]:
        """Empty L1 and prove it.

        Args:
            memory_only: what lies in L2 storage is meant to survive.

        Returns:
            The contents before and after; `after.objects` is 0.

        Raises:
            EngineError: when a store is still under way (clearing then would
                corrupt it), L2 storage is configured (it would survive), or
                objects are left.
        """
        adapters = int(self.status()["storage_manager"].get("num_l2_adapters", 0))
        if adapters and not memory_only:
            raise EngineError(
                "clearing reaches LMCache's memory only, and this server has L2 storage",
                option="--l2-adapter",
                value=adapters,
                expected="none",
            )
        before = self.wait_unlocked()
        self._json("POST", "/cache/clear")
        after = self.contents()
        if after.objects:
            raise EngineError(
                "the LMCache server kept objects after it was told to clear",
                value=after,
                expected="0 objects",
                remedy="stop every engine and client that still writes to it",
            )
        return before, after

    def list_objects(self, tier: str) -> list[dict[str, Any]]:
        """List the objects of tier `l1` or `l2`, all pages of them.

        Raises:
            EngineError: the server has no such tier, or can't list it.
        """
        entries: list[dict[str, Any]] = []
        token = ""
        while True:
            arguments = {"tier": tier, **({"page_token": token} if token else {})}
            page = self._json("GET", "/cache/objects", params=arguments)
            entries += page["entries"]
            token = page.get("next_page_token") or ""
            if not token:
                return entries

    def metrics_text(self) -> str:
        """The page of counters as Prometheus reads it."""
        return self._request("GET", "/metrics").text

    def delete(self, keys: Sequence[Mapping[str, Any]]) -> int:
        """Delete objects from L1, locked ones too.

        Args:
            keys: object keys in LMCache's JSON form.

        Returns:
            How many there were.
        """
        body = {"keys": list(keys), "tier": "l1", "force": True}
        return int(self._json("DELETE", "/cache/objects", json=body)["deleted"])

    def end_lease(self, variant: str) -> int:
        """End the lease of a request-local variant; its entries can't be read after that.

        Returns:
            How many were deleted at once; those in use follow.

        Raises:
            EngineError: when the server refuses, or has no leases.
            EvidenceError: `variant` is no variant text.
        """
        parse_variant(variant)
        answer = self._json("DELETE", f"/transform/leases/{variant}")
        if type(answer.get("deleted")) is not int:
            raise EngineError("LMCache did not say that a lease has ended", value=answer)
        return int(answer["deleted"])

    def hit_counters(self, model_name: str, cache_salt: str = "") -> HitCounters:
        """Read the totals of one model and salt, once the server has counted everything.

        The server counts behind its back, so this waits until its event queue
        is empty and two readings agree.

        Raises:
            EvidenceError: when metrics are off or never settle.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        previous: HitCounters | None = None
        while True:
            samples = parse_samples(self.metrics_text())
            current = hit_counters(
                samples,
                model_name=model_name,
                cache_salt=cache_salt,
                chunk_size_tokens=self.chunk_size_tokens(),
            )
            if events_queued(samples) == 0:
                if current == previous:
                    return current
                previous = current
            if time.monotonic() > deadline:
                raise EvidenceError(
                    "the LMCache server's counters did not settle",
                    value=f"{SETTLE_SECONDS} s",
                    remedy="let no other client use the server during a measured request",
                )
            time.sleep(POLL_SECONDS)

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        response = self._request(method, path, **arguments)
        try:
            body = response.json()
        except ValueError as error:
            raise EngineError(
                f"LMCache answered {path} with no JSON", value=response.text[:200]
            ) from error
        if not isinstance(body, dict):
            raise EngineError(f"LMCache answered {path} with no JSON object", value=body)
        return body

    def _request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        response = self.answer(method, path, **arguments)
        if not response.ok:
            url = f"{self.base_url}{path}"
            raise EngineError(f"LMCache refused {method} {url}", value=response.text[:300])
        return response

    def answer(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send one request and return the answer, whatever its status.

        Raises:
            EngineError: when the server does not answer.
        """
        url = f"{self.base_url}{path}"
        try:
            return self._session.request(method, url, timeout=self._timeout, **arguments)
        except requests.RequestException as error:
            raise EngineError(
                f"the LMCache server at {url} does not answer: {error}",
                remedy="read logs/lmcache.log in the run folder",
            ) from error
