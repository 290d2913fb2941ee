# SPDX-License-Identifier: Apache-2.0
"""What every L2 adapter owes: the exact identity and no other, byte for byte, while it lasts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvseal.backends.backend import Backend, Running
from kvseal.errors import KvsealError

# LMCache's s3 adapter raises inside a callback of awscrt for each object that a load does not find.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ALL = ("ordinary", "salted", "q", "p", "salted-q")


def stored_all(identity: Any, kinds: tuple[str, ...]) -> dict[Any, bytes]:
    """One entry for each kind, all with the same chunk hash."""
    return {identity.of_kind(kind).key: identity.of_kind(kind).payload() for kind in kinds}


def strangers(identity: Any, kinds: tuple[str, ...]) -> list[Any]:
    """Keys near to what `stored_all` stores, and not among it."""
    stored = {identity.of_kind(kind) for kind in kinds}
    near = {other for one in stored for other in one.others().values()} - stored
    return [one.key for one in sorted(near, key=repr) if "salted" in kinds or not one.salt]


@pytest.mark.parametrize("kind", ALL)
def test_the_exact_identity_is_found_and_no_other(
    kind: str, identity: Any, kinds: tuple[str, ...], opened: Callable[[], Any], backend: Backend
) -> None:
    if kind not in kinds:
        pytest.skip(f"LMCache refuses keys with a salt in {backend.name}: see the test of that")
    subject = identity.of_kind(kind)
    others = {
        name: other
        for name, other in subject.others().items()
        if "salted" in kinds or not other.salt
    }
    with opened() as adapter:
        assert adapter.found([subject.key]) == [False]
        adapter.store({subject.key: subject.payload()})
        assert adapter.found([subject.key]) == [True]
        assert adapter.load([subject.key]) == [subject.payload()]
        found = adapter.found([other.key for other in others.values()])
        assert [name for name, hit in zip(others, found, strict=True) if hit] == []
        if backend.loads_absent:
            loaded = adapter.load_blindly([other.key for other in others.values()])
            assert [name for name, hit in zip(others, loaded, strict=True) if hit] == []


def test_identities_of_one_chunk_coexist(
    identity: Any, kinds: tuple[str, ...], opened: Callable[[], Any]
) -> None:
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
        assert adapter.load(list(entries)) == list(entries.values())
        assert not any(adapter.found(strangers(identity, kinds)))


def test_deleting_one_leaves_the_others(
    identity: Any, kinds: tuple[str, ...], opened: Callable[[], Any], backend: Backend
) -> None:
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
        gone: set[Any] = set()
        for key in entries:
            adapter.delete([key])
            gone |= {key} if backend.deletes else set()
            expected = [None if other in gone else text for other, text in entries.items()]
            assert adapter.load(list(entries)) == expected


def test_a_restart_of_lmcache_keeps_what_lasts_and_nothing_else(
    identity: Any, kinds: tuple[str, ...], opened: Callable[[], Any], backend: Backend
) -> None:
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
    expected = list(entries.values()) if backend.lasts_over_lmcache else [None] * len(entries)
    with opened() as adapter:
        assert adapter.load(list(entries)) == expected
        assert not any(adapter.found(strangers(identity, kinds)))


def test_a_restart_of_its_own_server_keeps_what_lasts_and_nothing_else(
    identity: Any,
    kinds: tuple[str, ...],
    opened: Callable[[], Any],
    backend: Backend,
    running: Running,
) -> None:
    if not backend.own_server:
        assert backend.lasts_over_own is None
        with pytest.raises(KvsealError, match="no restart"):
            running.restart()
        return
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
    running.restart()
    expected = list(entries.values()) if backend.lasts_over_own else [None] * len(entries)
    with opened() as adapter:
        assert adapter.load(list(entries)) == expected
        assert not any(adapter.found(strangers(identity, kinds)))


def test_another_process_reads_the_old_store(
    *,
    identity: Any,
    kinds: tuple[str, ...],
    opened: Callable[[], Any],
    backend: Backend,
    running: Running,
    other_process: Callable[[Running, list[Any]], list[str | None]],
) -> None:
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
    digests = [hashlib.sha256(text).hexdigest() for text in entries.values()]
    expected = digests if backend.lasts_over_lmcache else [None] * len(entries)
    assert other_process(running, list(entries)) == expected
    assert not any(other_process(running, strangers(identity, kinds)))


def test_a_refused_salt_is_rightly_refused(
    identity: Any,
    kinds: tuple[str, ...],
    opened: Callable[[], Any],
    backend: Backend,
    lmcache_version: str,
) -> None:
    """Why a backend is refused for tenants: what LMCache's own adapter does with a salted key."""
    refusal = backend.refused(lmcache_version)
    if refusal is None:
        assert "salted" in kinds
        return
    salted = [identity.of_kind(kind) for kind in ("salted", "salted-q")]
    with opened() as adapter:
        if refusal.leaks:
            adapter.store({one.key: one.payload() for one in salted})
            other = [replace(one, salt="tenant-2").key for one in salted]
            assert adapter.load(other) == [one.payload() for one in salted], "the leak is gone"
            assert adapter.found([replace(one, salt="").key for one in salted]) == [True, True]
            return
        for one in salted:
            with pytest.raises(KvsealError, match="failed store"):
                adapter.store({one.key: one.payload()})
        assert adapter.found([one.key for one in salted]) == [False, False]


def test_model_names_that_stock_lmcache_confuses_are_the_known_ones(
    identity: Any, opened: Callable[[], Any], backend: Backend
) -> None:
    """`org/model` and `org-SEP-model` are one file in stock LMCache: shown, since it is a limit."""
    confused = {"fs": "org-SEP-model-1", "nixl": "org--model-1"}
    expected = [backend.confuses == ("/", "-SEP-"), backend.confuses == ("/", "--")]
    with opened() as adapter:
        adapter.store({identity.key: identity.payload()})
        keys = [replace(identity, model=name).key for name in confused.values()]
        assert adapter.found(keys) == expected


def test_size_and_wipe(
    identity: Any,
    kinds: tuple[str, ...],
    opened: Callable[[], Any],
    running: Running,
    backend: Backend,
) -> None:
    if running.on_wipe is None or running.on_size is None:
        assert not backend.lasts_over_lmcache, "what lasts can be measured and emptied"
        return
    entries = stored_all(identity, kinds)
    with opened() as adapter:
        adapter.store(entries)
    assert running.size() >= sum(map(len, entries.values()))
    running.wipe()
    assert running.size() < len(identity.payload())
    with opened() as adapter:
        assert not any(adapter.found(list(entries)))
