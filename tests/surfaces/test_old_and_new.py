# SPDX-License-Identifier: Apache-2.0
"""Different LMCaches on one store, a folder and redis: as published, patched, and two releases.

Ordinary entries are everybody's, byte for byte. A variant's entries are for who
names the variant, which an LMCache without the edits can't; and to an LMCache
server without them a patched client gives no variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from lmcache_servers import Node, node, redis, until
from lmcache_trees import Tree
from sdk_client import MODEL, RefusedError
from shared_stores import Stores
from stored_case import Case


@dataclass(frozen=True)
class Pair:
    """Two servers on the same stores."""

    one: Node
    two: Node
    stores: Stores


def _pair(trees: tuple[Tree, Tree], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with redis(folder / "redis") as port:
        stores = Stores(folder / "l2", port)
        with (
            node(trees[0], folder / "one", l2=stores.l2) as one,
            node(trees[1], folder / "two", l2=stores.l2) as two,
        ):
            yield Pair(one, two, stores)


@pytest.fixture(scope="module")
def mixed(tree_of: Callable[..., Tree], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """LMCache 0.5.4 as published, and patched."""
    trees = (tree_of("0.5.4", patched=False), tree_of("0.5.4"))
    yield from _pair(trees, tmp_path_factory)


@pytest.fixture(scope="module")
def releases(
    tree_of: Callable[..., Tree], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """LMCache 0.5.4 and 0.5.6, both patched."""
    yield from _pair((tree_of("0.5.4"), tree_of("0.5.6")), tmp_path_factory)


def test_ordinary_entries_are_shared_both_ways(mixed: Pair, case: Case) -> None:
    held: dict[str, Any] = {}
    for writer, reader, salt in (
        (mixed.one, mixed.two, f"{case.salt}-a"),
        (mixed.two, mixed.one, f"{case.salt}-b"),
    ):
        kv = writer.client.store(case.tokens, 1, salt)
        assert mixed.stores.hold(salt, 4)
        assert mixed.stores.read(reader, case.tokens, salt) == [kv, kv]
        kept = (mixed.stores.files(salt), mixed.stores.redis(salt))
        held[salt] = [
            {name.replace(salt, "tenant"): data for name, data in found.items()} for found in kept
        ]
    stock, patched = held.values()
    assert stock == patched
    assert all(stock)


def test_stock_does_not_see_a_variant(mixed: Pair, case: Case) -> None:
    variant = case.variant()
    kv = mixed.two.client.store(case.tokens, 1, case.salt, variant)
    mixed.two.client.store(case.tokens, 2, case.salt, case.variant("r"))
    assert mixed.stores.hold(case.salt, 4)
    assert mixed.stores.read(mixed.one, case.tokens, case.salt) == [0, 0]
    # Named as a model, it is one that this server has no layout of.
    assert mixed.stores.read(mixed.one, case.tokens, case.salt, variant) == [0, 0]
    # Ordinary KV of the same tokens lies beside it, and each finds its own.
    ordinary = mixed.one.client.store(case.tokens, 3, case.salt)
    assert mixed.stores.hold(case.salt, 8)
    for reader in (mixed.one, mixed.two):
        assert mixed.stores.read(reader, case.tokens, case.salt) == [ordinary, ordinary]
    assert mixed.stores.read(mixed.two, case.tokens, case.salt, variant) == [kv, kv]


def test_stock_lists_and_deletes_by_the_name_it_is_given(mixed: Pair, case: Case) -> None:
    variant = case.variant()
    kv = mixed.two.client.store(case.tokens, 1, case.salt, variant)
    mixed.one.client.store(case.tokens, 2, case.salt)
    assert mixed.stores.hold(case.salt, 8)

    def listed(name: str) -> list[Any]:
        answer = mixed.one.http.answer("GET", "/cache/objects", params={"model_name": name})
        return [e["key"] for e in answer.json()["entries"] if e["key"]["cache_salt"] == case.salt]

    assert len(listed(MODEL)) == 4
    keys = listed(f"{MODEL}##tv1-{variant}")
    assert len(keys) == 4

    def delete(keys: list[Any]) -> None:
        for adapter in ("plugin", "resp"):
            body = {"keys": keys, "tier": "l2", "adapter": adapter}
            assert mixed.one.http.answer("DELETE", "/cache/objects", json=body).json()["ok"]

    delete(listed(MODEL))
    assert mixed.stores.hold(case.salt, 4)
    assert all(variant in name for name in mixed.stores.files(case.salt))
    assert mixed.stores.read(mixed.two, case.tokens, case.salt, variant) == [kv, kv]
    ordinary = mixed.one.client.store([*case.tokens], 3, f"{case.salt}-b")
    assert mixed.stores.hold(f"{case.salt}-b", 4)
    delete(keys)
    assert mixed.stores.hold(case.salt, 0)
    assert mixed.stores.read(mixed.two, case.tokens, f"{case.salt}-b") == [ordinary, ordinary]


def test_a_patched_client_gives_a_stock_server_no_variant(mixed: Pair, case: Case) -> None:
    client, variant = mixed.two.client, case.variant()
    before = mixed.one.http.object_count()
    client.disconnect()
    try:
        client.connect(mixed.one.url, mixed.one.http.base_url)
        with pytest.raises(RefusedError, match="does not take query-scoped variants"):
            client.store(case.tokens, 1, case.salt, variant)
        with pytest.raises(RefusedError, match="does not announce transform_identity_v1"):
            client.own_store(case.tokens, 1, case.salt, variant)
        assert client.own_store(case.tokens, 1, f"{case.salt}-ordinary")
    finally:
        client.disconnect()
        client.connect(mixed.two.url, mixed.two.http.base_url)
    assert mixed.stores.hold(f"{case.salt}-ordinary", 4)
    assert mixed.one.http.object_count() <= before + 4
    assert mixed.stores.files(case.salt) == mixed.stores.redis(case.salt) == {}


def test_two_releases_agree(releases: Pair, case: Case) -> None:
    variant = case.variant()
    for writer, reader, salt in (
        (releases.one, releases.two, f"{case.salt}-a"),
        (releases.two, releases.one, f"{case.salt}-b"),
    ):
        kv = writer.client.store(case.tokens, 1, salt, variant)
        writer.client.store(case.tokens, 2, salt, case.variant("r"))
        assert releases.stores.hold(salt, 4)
        assert releases.stores.read(reader, case.tokens, salt) == [0, 0]
        assert releases.stores.read(reader, case.tokens, salt, case.variant(number=1)) == [0, 0]
        assert releases.stores.read(reader, case.tokens, salt, case.variant("r")) == [0, 0]
        assert releases.stores.read(reader, case.tokens, salt, variant) == [kv, kv]
        ordinary = writer.client.store(case.tokens, 3, salt)
        assert releases.stores.hold(salt, 8)
        assert releases.stores.read(reader, case.tokens, salt) == [ordinary, ordinary]
        assert releases.stores.read(reader, case.tokens, salt, variant) == [kv, kv]


def test_both_releases_write_the_same_names(releases: Pair, case: Case) -> None:
    held = []
    for writer, salt in ((releases.one, f"{case.salt}-a"), (releases.two, f"{case.salt}-b")):
        writer.client.store(case.tokens, 1, salt)
        writer.client.store(case.tokens, 2, salt, case.variant())
        assert releases.stores.hold(salt, 8)
        found = (releases.stores.files(salt), releases.stores.redis(salt))
        held.append([{name.replace(salt, "tenant") for name in names} for names in found])
    assert held[0] == held[1]
    assert until(lambda: releases.one.http.contents().write_locked == 0)
