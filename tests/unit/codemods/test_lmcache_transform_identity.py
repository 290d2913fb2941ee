# SPDX-License-Identifier: Apache-2.0
"""The module that is put into LMCache and vLLM holds the rules of kvseal.identity.variant."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kvseal.codemods.added import source_of, transform_identity
from kvseal.errors import KvsealError
from kvseal.identity import variant as outside

V = "q1" + "b" * 32
PARAMS = {"lmcache.variant": V}


def test_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(source_of("transform_identity"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


def result(call: Callable[..., Any], *arguments: str) -> Any:
    try:
        return call(*arguments)
    except (ValueError, KvsealError):
        return "refused"


def texts() -> list[str]:
    """Names and variants, right ones and each kind of wrong one, and seeded mutations of them."""
    parts = ["", "m", "a/b", "##query", "##lmcache-dcp-layout-v1-x", "##tv1-", "##tv2-", "##TV1-"]
    parts += [
        V,
        V[:-1],
        V + "a",
        "r1" + "a" * 32,
        "x1" + "a" * 32,
        "q2" + "a" * 32,
        "Q1" + "a" * 32,
    ]
    parts += ["q1" + "1" * 32, V + "\n", "##tv", "#", "q1" + "ſ" * 32, "q１" + "b" * 32]
    made = [*parts, *(a + b for a in parts for b in parts)]
    made += [f"m{a}{b}{c}" for a in parts[2:8] for b in parts[2:12] for c in parts[2:12]]
    chosen = random.Random(0)  # noqa: S311
    for _ in range(3000):
        text = list(chosen.choice(made[:60]) + "##tv1-" + V)
        for _ in range(chosen.randrange(3)):
            text[chosen.randrange(len(text))] = chosen.choice("#tv1-aqrpg2\n\0@/Z")
        made.append("".join(text))
    return made


def test_both_sides_read_and_write_the_same() -> None:
    outcomes = set()
    for text in texts():
        split = result(transform_identity.split, text)
        assert split == result(outside.split, text), text
        valid = result(transform_identity.validate, text)
        assert (valid == "refused") == (result(outside.parse_variant, text) == "refused"), text
        for variant in ("", V, text):
            one = result(transform_identity.decorate, text, variant)
            assert one == result(outside.decorate, text, variant), (text, variant)
            if one != "refused":
                assert transform_identity.split(one) == (text, variant)
        outcomes.add((split == "refused", valid == "refused"))
    assert outcomes == {(False, False), (False, True), (True, True)}
    assert (transform_identity.MARK, transform_identity.RESERVED) == (
        outside.MARK,
        outside.RESERVED,
    )


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, ("", 0)),
        ({}, ("", 0)),
        ("lmcache.variant", ("", 0)),
        ({"do_remote_prefill": True, "lmcache.max_offload_tokens": 4}, ("", 0)),
        ({"lmcache.variant": ""}, ("", 0)),
        (PARAMS, (V, 0)),
        ({**PARAMS, "lmcache.variant_tokens": 12}, (V, 12)),
    ],
)
def test_what_a_request_names(params: Any, expected: tuple[str, int]) -> None:
    assert transform_identity.of_request(params, "tenant") == expected


@pytest.mark.parametrize(
    "params",
    [
        {"lmcache.variant": None},
        {"lmcache.variant": 0},
        {"lmcache.variant": [V]},
        {"lmcache.variant": V.upper()},
        {"lmcache.variant": V + " "},
        {"lmcache.Variant": V},
        {"LMCACHE.VARIANT": V},
        {"lmcache_variant": V},
        {"lmcache-variant": V},
        {"lmcache.variants": V},
        {**PARAMS, "lmcache.variant.tokens": 4},
        {**PARAMS, "lmcache.variant_tokens": -1},
        {**PARAMS, "lmcache.variant_tokens": True},
        {"lmcache.variant_tokens": 4},
    ],
)
def test_what_only_looks_like_a_variant_is_refused(params: Any) -> None:
    with pytest.raises(ValueError, match=r"variant|unknown key"):
        transform_identity.of_request(params)


@pytest.mark.parametrize("salt", ["##tv1-" + V, "a##tv", "A##TV9"])
def test_a_salt_that_holds_the_mark_is_refused_for_every_request(salt: str) -> None:
    for params in (None, PARAMS):
        with pytest.raises(ValueError, match="cache salt"):
            transform_identity.of_request(params, salt)


def test_a_server_must_announce_what_is_sent_to_it() -> None:
    assert transform_identity.announcement("rq") == [
        "transform_identity_v1",
        "transform_identity_v1:r",
        "transform_identity_v1:q",
    ]
    transform_identity.require_announced(V, transform_identity.announcement("rq"), "s")
    for announced, reason in (
        ([], "does not announce"),
        (["transfer_query"], "does not announce"),
        (["transform_identity_v1"], "other scopes"),
        (transform_identity.announcement("r"), "other scopes"),
    ):
        with pytest.raises(ValueError, match=reason):
            transform_identity.require_announced(V, announced, "s")
    with pytest.raises(ValueError, match="malformed"):
        transform_identity.require_announced("", ["transform_identity_v1:"], "s")
