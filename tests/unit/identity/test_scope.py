# SPDX-License-Identifier: Apache-2.0
"""Wide scopes need a registered proof, narrow ones never do; nothing is registered by default."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvseal
from kvseal.errors import EvidenceError, TransformError
from kvseal.identity import (
    Proof,
    Scope,
    TransformManifest,
    register_transform,
    request_local,
    variant_of,
)
from kvseal.identity.scope import LETTERS, check_allowed, is_wider

DIGEST = "ab" * 32
FIXED = ("algorithm", "parameters", "source", "format")
PREFIX = Proof("prefix", FIXED, "tests/x.py::test_both_ways")
GLOBAL = Proof("global", ("algorithm", "parameters", "format"), "tests/x.py::test_both_ways")


def test_nothing_is_registered_by_default() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import kvseal.identity, kvseal.identity.recipe, kvseal.identity.scope as scope\n"
        "print(len(scope._PROOFS))"
    )
    source = str(Path(kvseal.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize("kind", ["prefix", "global"])
def test_wide_scopes_are_refused_without_a_proof(kind: str, nothing_registered: None) -> None:
    with pytest.raises(TransformError) as caught:
        check_allowed(kind, "codec", 2)
    assert caught.value.option == "scope.kind"
    assert caught.value.value == kind


@pytest.mark.parametrize("kind", ["request-local", "query-scoped"])
def test_narrow_scopes_need_none(kind: str, nothing_registered: None) -> None:
    check_allowed(kind, "codec", 2)


@pytest.mark.parametrize(
    ("proof", "allowed"), [(PREFIX, {"prefix"}), (GLOBAL, {"prefix", "global"})]
)
def test_a_proof_allows_its_scope_and_narrower_ones(
    proof: Proof, allowed: set[str], nothing_registered: None
) -> None:
    register_transform("codec", 2, proof=proof)
    for kind in ("prefix", "global"):
        if kind in allowed:
            check_allowed(kind, "codec", 2)
        else:
            with pytest.raises(TransformError, match="no proof"):
                check_allowed(kind, "codec", 2)


@pytest.mark.parametrize(("name", "version"), [("codec", 1), ("codec", 3), ("Codec", 2)])
def test_another_name_or_version_has_no_proof(
    name: str, version: int, nothing_registered: None
) -> None:
    register_transform("codec", 2, proof=GLOBAL)
    with pytest.raises(TransformError):
        check_allowed("prefix", name, version)


def test_registering_twice(nothing_registered: None) -> None:
    register_transform("codec", 2, proof=PREFIX)
    register_transform("codec", 2, proof=PREFIX)
    with pytest.raises(TransformError, match="another proof"):
        register_transform("codec", 2, proof=GLOBAL)
    with pytest.raises(TransformError):
        check_allowed("global", "codec", 2)


@pytest.mark.parametrize("proof", [None, "trust me", True, {"scope": "global"}])
def test_nothing_else_is_a_proof(proof: Any, nothing_registered: None) -> None:
    with pytest.raises(EvidenceError):
        register_transform("codec", 2, proof=proof)
    with pytest.raises(TransformError):
        check_allowed("global", "codec", 2)


@pytest.mark.parametrize(
    ("scope", "fixed_by"),
    [
        ("prefix", ("algorithm", "source", "query")),
        ("prefix", ("algorithm", "parameters")),
        ("prefix", ()),
        ("prefix", ("source", "source")),
        ("prefix", ("source", "scope")),
        ("global", ("algorithm", "source")),
        ("global", ("query",)),
        ("global", ()),
        ("query-scoped", FIXED),
        ("request-local", FIXED),
        ("everybody", FIXED),
    ],
)
def test_what_proves_nothing(scope: str, fixed_by: tuple[str, ...]) -> None:
    with pytest.raises(EvidenceError):
        Proof(scope, fixed_by, "tests/x.py")


def test_a_proof_names_what_shows_it() -> None:
    with pytest.raises(EvidenceError, match=r"proof\.shown_by"):
        Proof("prefix", FIXED, "")


@pytest.mark.parametrize("name", ["prefix", "global"])
def test_no_variant_without_a_proof(
    name: str, document: Callable[[str], dict[str, Any]], nothing_registered: None
) -> None:
    manifest = TransformManifest.from_json(document(name))
    with pytest.raises(TransformError):
        variant_of(manifest)
    register_transform("codec", 2, proof=GLOBAL)
    assert variant_of(manifest)[0] == name[0]


@pytest.mark.parametrize(
    ("kind", "binding"),
    [
        ("request-local", ""), ("request-local", "ab" * 15), ("request-local", DIGEST),
        ("request-local", "AB" * 16), ("request-local", None), ("query-scoped", "ab" * 16),
        ("query-scoped", ""), ("prefix", "x" * 64), ("global", DIGEST), ("global", None),
        ("global", False), ("local", ""), ("", ""), (None, ""), ("r", "ab" * 16),
    ],
)  # fmt: skip
def test_scopes_that_are_none(kind: Any, binding: Any) -> None:
    with pytest.raises(EvidenceError) as caught:
        Scope(kind, binding)
    assert str(caught.value.option).startswith("scope.")


def test_each_request_has_a_nonce_of_its_own() -> None:
    made = {request_local().binding for _ in range(1000)}
    assert len(made) == 1000
    assert {len(nonce) for nonce in made} == {32}
    # Every bit is drawn: each takes both values somewhere.
    numbers = [int(nonce, 16) for nonce in made]
    for bit in range(128):
        assert {number >> bit & 1 for number in numbers} == {0, 1}
    assert len({number >> 64 ^ number & 2**64 - 1 for number in numbers}) == 1000, "128 bits"


def test_scopes_widen_in_one_order() -> None:
    order = ["request-local", "query-scoped", "prefix", "global"]
    assert list(LETTERS.values()) == ["r", "q", "p", "g"]
    for i, kind in enumerate(order):
        for j, other in enumerate(order):
            assert is_wider(kind, other) == (i > j)
