# SPDX-License-Identifier: Apache-2.0
"""Two LMCache servers and a coordinator: what one stores, the others know by its exact name.

Both servers share a folder behind their memory and report to one real
coordinator. Every test stores ordinary KV, a query-scoped variant of the same
tokens and a request-local one, or some of these, and asks one surface.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lmcache_servers import (
    CHUNK,
    Coordinator,
    Node,
    command_line,
    coordinator,
    node,
    shared_folder,
    until,
)
from lmcache_trees import Tree
from sdk_client import MODEL, RefusedError
from stored_case import Case

MARK = "##tv"


@dataclass(frozen=True)
class Fleet:
    """Servers `a` and `b` under one coordinator."""

    tree: Tree
    coordinator: Coordinator
    a: Node
    b: Node
    folder: Path

    def named(self, case: Case, variant: str = "") -> dict[str, Any]:
        """Return what a request by tokens says."""
        name = f"{MODEL}##tv1-{variant}" if variant else MODEL
        return {
            "model_name": name,
            "world_size": 1,
            "token_ids": case.tokens,
            "cache_salt": case.salt,
        }

    def instance(self, of: Node) -> str:
        """Return the name under which a server is registered."""
        port = int(of.http.base_url.rpartition(":")[2])

        def found() -> str:
            listed = self.coordinator.get("/instances")
            known = listed["instances"] if isinstance(listed, dict) else listed
            return next((str(i["instance_id"]) for i in known if i["http_port"] == port), "")

        return until(found)

    def listed(self, case: Case, variant: str = "") -> list[dict[str, Any]]:
        """Return what the directory lists of one tenant and variant."""
        name = str(self.named(case, variant)["model_name"])
        return [e for e in self.coordinator.keys(case.salt) if e["key"]["model_name"] == name]

    def in_l2(self, case: Case, variant: str = "", chunks: int = 4) -> bool:
        """Wait until the coordinator knows that many chunks in the second tier."""

        def arrived() -> bool:
            tiers = [{p["tier"] for p in e["placements"]} for e in self.listed(case, variant)]
            return len([t for t in tiers if "l2" in t]) == chunks

        return until(arrived)

    def delete(self, case: Case, variant: str = "", tier: str = "all") -> dict[str, Any]:
        """Delete by tokens through the coordinator, on server `a`."""
        body = {
            **self.named(case, variant),
            "instance_id": self.instance(self.a),
            "tier": tier,
            "force": True,
        }
        return dict(self.coordinator.ask("POST", "/cache/delete", json=body))

    def blend(self, case: Case, variant: str = "") -> list[Any]:
        """Look the tokens up as a fragment of any prompt."""
        packed = base64.b64encode(struct.pack(f"<{len(case.tokens)}I", *case.tokens)).decode()
        named = self.named(case, variant)
        body = {k: named[k] for k in ("model_name", "cache_salt", "world_size")}
        answer = self.coordinator.ask(
            "POST", "/directory/blend-lookup", json={**body, "tokens_b64": packed}
        )
        return list(answer["matches"])


@pytest.fixture(scope="module")
def fleet(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A coordinator and two servers, with every log that can be had."""
    folder = tmp_path_factory.mktemp("fleet")
    l2 = [shared_folder(folder / "l2")]
    logs = ("--lookup-hash-log-dir", str(folder / "lookups"))
    settings = ("--eviction-check-interval", "0.5")
    with (
        coordinator(tree, folder, arguments=settings) as fleet,
        node(tree, folder / "a", l2=l2, arguments=(*fleet.arguments, *logs)) as a,
        node(tree, folder / "b", l2=l2, arguments=fleet.arguments) as b,
    ):
        yield Fleet(tree, fleet, a, b, folder)


def test_another_server_finds_a_variant_by_its_exact_name(fleet: Fleet, case: Case) -> None:
    variant, local = case.variant(), case.variant("r")
    kv = fleet.a.client.store(case.tokens, 1, case.salt, variant)
    mine = fleet.a.client.store(case.tokens, 2, case.salt, local)
    assert fleet.in_l2(case, variant)
    assert fleet.b.client.retrieve(case.tokens, case.salt, variant) == kv
    assert fleet.b.client.retrieve(case.tokens, case.salt) == 0
    assert fleet.b.client.retrieve(case.tokens, case.salt, case.variant(number=1)) == 0
    assert fleet.b.client.retrieve(case.tokens, case.salt, case.variant("r", 1)) == 0
    assert fleet.b.client.retrieve(case.tokens, f"{case.salt}-other", variant) == 0
    # The request-local one is where it was stored, and nowhere else.
    assert fleet.b.client.retrieve(case.tokens, case.salt, local) == 0
    assert fleet.a.client.retrieve(case.tokens, case.salt, local) == mine
    assert not list((fleet.folder / "l2").glob(f"*{local}*"))


def test_ordinary_kv_beside_a_variant_stays_its_own(fleet: Fleet, case: Case) -> None:
    variant = case.variant()
    ordinary = fleet.a.client.store(case.tokens, 1, case.salt)
    kv = fleet.a.client.store(case.tokens, 2, case.salt, variant)
    assert fleet.in_l2(case) and fleet.in_l2(case, variant)
    assert ordinary != kv
    assert fleet.b.client.retrieve(case.tokens, case.salt) == ordinary
    assert fleet.b.client.retrieve(case.tokens, case.salt, variant) == kv


def test_the_directory_places_each_under_its_own_name(fleet: Fleet, case: Case) -> None:
    variant, local = case.variant(), case.variant("r")
    fleet.a.client.store(case.tokens, 1, case.salt, local)
    fleet.a.client.store(case.tokens, 2, case.salt, variant)
    assert fleet.in_l2(case, variant)
    assert {e["key"]["model_name"] for e in fleet.coordinator.keys(case.salt)} == {
        f"{MODEL}##tv1-{variant}"
    }

    def placed(variant: str) -> list[int]:
        body = fleet.named(case, variant)
        answer = fleet.coordinator.ask("POST", "/directory/lookup", json=body)
        return [len(result["placements"]) for result in answer["results"]]

    assert placed(variant) == [2, 2, 2, 2]  # memory of `a`, and the folder
    assert placed("") == [0, 0, 0, 0]
    assert placed(case.variant(number=1)) == [0, 0, 0, 0]


def test_the_directory_has_no_tokens_of_a_variant(fleet: Fleet, case: Case) -> None:
    variant = case.variant()
    assert fleet.a.client.worker_store(case.tokens, 1, case.salt)
    fleet.a.client.store(case.tokens, 2, case.salt, variant)
    # As an engine stores what it computed on top of a variant.
    longer = Case(case.salt, case.tokens + list(range(900_000, 900_016)), 0)
    assert fleet.a.client.worker_store(longer.tokens, 3, case.salt, case.variant(number=1))
    assert fleet.in_l2(case) and fleet.in_l2(case, variant)
    assert fleet.in_l2(longer, case.variant(number=1), chunks=5)
    assert {e["num_tokens"] for e in fleet.listed(case)} == {CHUNK}
    assert {e["num_tokens"] for e in fleet.listed(case, variant)} == {0}
    assert {e["num_tokens"] for e in fleet.listed(case, case.variant(number=1))} == {0}
    body = fleet.named(case, variant)
    results = fleet.coordinator.ask("POST", "/directory/lookup", json=body)["results"]
    assert [(len(r["placements"]), r["token_ids"]) for r in results] == [(2, [])] * 4


def test_a_variant_is_no_fragment_of_a_prompt(fleet: Fleet, case: Case) -> None:
    variant = case.variant()
    assert fleet.a.client.worker_store(case.tokens, 1, case.salt)
    kv = fleet.a.client.store(case.tokens, 2, case.salt, variant)
    assert fleet.in_l2(case) and fleet.in_l2(case, variant)
    assert len(fleet.blend(case)) == 4
    if fleet.tree.version != "0.5.4":  # there a lookup names no model
        assert fleet.blend(case, variant) == []
    # The ordinary entries go; what is left under their hashes is no offer.
    fleet.delete(case)
    assert until(lambda: not fleet.listed(case))
    assert len(fleet.listed(case, variant)) == 4
    assert fleet.blend(case) == []
    assert fleet.b.client.retrieve(case.tokens, case.salt, variant) == kv


def test_a_delete_reaches_what_it_names(fleet: Fleet, case: Case) -> None:
    one, two = case.variant(), case.variant(number=1)
    ordinary = fleet.a.client.store(case.tokens, 1, case.salt)
    kv = {v: fleet.a.client.store(case.tokens, n, case.salt, v) for n, v in ((2, one), (3, two))}
    for variant in ("", one, two):
        assert fleet.in_l2(case, variant)
    fleet.delete(case, one)
    assert until(lambda: not fleet.listed(case, one))
    assert fleet.b.client.retrieve(case.tokens, case.salt, one) == 0
    assert fleet.b.client.retrieve(case.tokens, case.salt, two) == kv[two]
    assert fleet.b.client.retrieve(case.tokens, case.salt) == ordinary
    # By key, as an eviction and an operator delete.
    keys = fleet.a.client.keys(case.tokens, case.salt, two)
    deleted = fleet.a.http.answer("DELETE", "/cache/objects", json={"keys": keys, "tier": "all"})
    assert deleted.ok
    assert until(lambda: not fleet.listed(case, two))
    assert len(fleet.listed(case)) == 4


@pytest.mark.parametrize("pinned", ["the variant", "ordinary KV"])
def test_a_pin_holds_what_it_names(fleet: Fleet, case: Case, pinned: str) -> None:
    variant = case.variant()
    held, gone = (variant, "") if pinned == "the variant" else ("", variant)
    fleet.a.client.store(case.tokens, 1, case.salt)
    fleet.a.client.store(case.tokens, 2, case.salt, variant)
    assert fleet.in_l2(case) and fleet.in_l2(case, variant)
    body = fleet.named(case, held)
    assert fleet.coordinator.ask("POST", "/cache/pins", json=body)["affected"] == 4
    if fleet.tree.version == "0.5.6":
        pins = fleet.coordinator.get("/cache/pins", cache_salt=case.salt)["pins"]
        assert {pin["key"]["model_name"] for pin in pins} == {body["model_name"]}
    fleet.coordinator.ask("PUT", f"/quota/{case.salt}", json={"limit_gb": 0})
    assert until(lambda: not fleet.a.chunks_in_l2(case.salt, gone))
    assert len(fleet.a.chunks_in_l2(case.salt, held)) == 4
    fleet.coordinator.ask("DELETE", "/cache/pins", json=body)
    assert until(lambda: not fleet.a.chunks_in_l2(case.salt, held))


def test_a_prefetch_brings_what_it_names(fleet: Fleet, case: Case) -> None:
    variant = case.variant()
    fleet.a.client.store(case.tokens, 1, case.salt, variant)
    assert fleet.in_l2(case, variant)
    instance = fleet.instance(fleet.b)

    def fetched(variant: str) -> Any:
        body = {**fleet.named(case, variant), "instance_id": instance}
        said = fleet.coordinator.ask("POST", "/cache/prefetches", json=body)
        path = f"/cache/prefetches/{instance}/{said['request_id']}"

        def status() -> Any:
            seen = fleet.coordinator.get(path)
            return seen if seen["status"] == "completed" else None

        return until(status)["found_keys"]

    assert fetched("") == 0
    assert fetched(case.variant(number=1)) == 0
    assert fetched(variant) == 4


def test_nobody_names_a_request_local_entry_to_the_coordinator(fleet: Fleet, case: Case) -> None:
    local = case.variant("r")
    kv = fleet.a.client.store(case.tokens, 1, case.salt, local)
    instance = fleet.instance(fleet.a)
    named = fleet.named(case, local)
    at = {"instance_id": instance}
    for method, path, body in (
        ("POST", "/directory/lookup", named),
        ("POST", "/cache/pins", named),
        ("DELETE", "/cache/pins", named),
        ("POST", "/cache/delete", {**named, **at, "tier": "all", "force": True}),
    ):
        answer = fleet.coordinator.answer(method, path, json=body)
        assert answer.status_code == 400, (path, answer.text)
        assert "request-local" in answer.text
    answer = fleet.coordinator.answer("POST", "/cache/prefetches", json={**named, **at})
    assert answer.status_code == 502  # the server said no
    assert fleet.a.client.retrieve(case.tokens, case.salt, local) == kv


def test_a_name_that_only_resembles_one_is_refused(fleet: Fleet, case: Case) -> None:
    for name in (f"{MODEL}##tv1-q1short", f"{MODEL}##tv1-{case.variant()}##query"):
        body = {**fleet.named(case), "model_name": name}
        for path in ("/directory/lookup", "/cache/pins"):
            assert fleet.coordinator.answer("POST", path, json=body).status_code == 400
        answer = fleet.a.http.answer("POST", "/cache/prefetches", json=body)
        assert answer.status_code == 400


def test_usage_and_quota_are_the_tenants(fleet: Fleet, case: Case) -> None:
    fleet.a.client.store(case.tokens, 1, case.salt)
    assert fleet.in_l2(case)
    fleet.a.client.store(case.tokens, 2, case.salt, case.variant("r"))
    fleet.a.client.store(case.tokens, 3, case.salt, case.variant())
    assert fleet.in_l2(case, case.variant())
    entries = fleet.a.chunks_in_l2(case.salt) + fleet.a.chunks_in_l2(case.salt, case.variant())
    assert len(entries) == 8
    used = fleet.coordinator.get(f"/quota/{case.salt}")["usage_gb"]
    assert used * 2**30 == pytest.approx(sum(entry["size_bytes"] for entry in entries))
    listed = str(fleet.coordinator.get("/quota")) + fleet.a.http.answer("GET", "/quota").text
    assert MARK not in listed


def test_a_listing_shows_model_and_variant_apart(fleet: Fleet, case: Case) -> None:
    variant = case.variant()
    fleet.a.client.store(case.tokens, 1, case.salt)
    fleet.a.client.store(case.tokens, 2, case.salt, variant)
    fleet.a.client.store(case.tokens, 3, case.salt, case.variant("r"))
    assert fleet.in_l2(case) and fleet.in_l2(case, variant)
    ordinary = fleet.a.chunks_in_l2(case.salt)
    assert [set(entry) for entry in ordinary] == [{"key", "size_bytes"}] * 4
    listed = fleet.a.chunks_in_l2(case.salt, variant)
    assert [(e["model_name"], e["variant"]) for e in listed] == [(MODEL, variant)] * 4
    mine = [e for e in fleet.a.http.list_objects("l2") if e["key"]["cache_salt"] == case.salt]
    assert len(mine) == 8  # none of the request-local one

    def filtered(name: str) -> list[Any]:
        answer = fleet.a.http.answer("GET", "/cache/objects", params={"model_name": name})
        return [e for e in answer.json()["entries"] if e["key"]["cache_salt"] == case.salt]

    assert filtered(MODEL) == ordinary
    assert filtered(f"{MODEL}##tv1-{variant}") == listed


def test_metrics_are_labelled_with_the_model_alone(fleet: Fleet, case: Case) -> None:
    for number, variant in enumerate(("", case.variant(), case.variant("r"))):
        fleet.a.client.store(case.tokens, number, case.salt, variant)
        assert fleet.a.client.retrieve(case.tokens, case.salt, variant)
    counted = f'cache_salt="{case.salt}"'
    assert until(lambda: counted in fleet.a.http.metrics_text())
    pages = [fleet.a.http.metrics_text(), fleet.coordinator.answer("GET", "/metrics").text]
    for page in pages:
        assert MARK not in page
        assert case.variant() not in page
        assert case.variant("r") not in page
    assert set(re.findall(r'model_name="([^"]*)"', pages[0])) == {MODEL}


def test_the_log_of_lookups_names_no_request_local_entry(fleet: Fleet, case: Case) -> None:
    variant, local = case.variant(), case.variant("r")
    for number, name in enumerate(("", local, variant)):
        fleet.a.client.store(case.tokens, number, case.salt, name)
        assert fleet.a.client.retrieve(case.tokens, case.salt, name)

    def written() -> str:
        return "".join(f.read_text() for f in (fleet.folder / "lookups").glob("*.jsonl"))

    assert until(lambda: f'"variant": "{variant}"' in written())
    assert local not in written()
    assert MARK not in written()


def test_kv_events_are_of_ordinary_kv(fleet: Fleet, case: Case) -> None:
    if fleet.tree.version == "0.5.4":
        assert fleet.a.client.kv_events(MODEL) is None
        return
    longer = case.tokens + list(range(910_000, 910_016))
    before = len(fleet.a.client.kv_events(MODEL))
    assert fleet.a.client.worker_store(longer, 1, case.salt, case.variant())
    assert fleet.a.client.worker_store(longer, 2, case.salt, case.variant("r"))
    fleet.a.client.store(case.tokens, 3, case.salt, case.variant(number=1))
    assert fleet.a.client.worker_store(case.tokens, 4, case.salt)
    assert until(lambda: len(fleet.a.client.kv_events(MODEL)) > before)
    new = fleet.a.client.kv_events(MODEL)[before:]
    assert {kind for kind, _ in new} == {"stored"}
    assert [token for _, tokens in new for token in tokens] == case.tokens
    for variant in (case.variant(), case.variant("r"), case.variant(number=1)):
        assert fleet.a.client.kv_events(f"{MODEL}##tv1-{variant}") == []


def test_the_command_line(fleet: Fleet, case: Case) -> None:
    variant, local = case.variant(), case.variant("r")
    fleet.a.client.store(case.tokens, 1, case.salt, variant)
    fleet.a.client.store(case.tokens, 2, case.salt, local)
    assert fleet.in_l2(case, variant)
    url = fleet.a.http.base_url
    commands = [("describe", "kvcache", "--url", url), ("quota", "list", "--url", url)]
    if fleet.tree.version != "0.5.4":
        at = ("--url", fleet.coordinator.url, "--limit", "10000")
        for api in ("instances", "quota", "usage", "directory", "metrics", "keys"):
            commands.append(("query", "coordinator", *at, "--api", api))
    shown = command_line(fleet.tree, *commands)
    assert all(shown)
    assert MARK not in "".join(shown)
    assert local not in "".join(shown)
    if fleet.tree.version != "0.5.4":
        assert variant in shown[-1]


def test_a_forged_request_is_refused_by_the_server_itself(fleet: Fleet, case: Case) -> None:
    with pytest.raises(RefusedError):
        fleet.a.client.store(case.tokens, 1, case.salt, case.variant("g"))
    assert fleet.a.client.retrieve(case.tokens, case.salt) == 0
