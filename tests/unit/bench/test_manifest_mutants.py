# SPDX-License-Identifier: Apache-2.0
"""What a mutant of the manifest is, and what the measurement makes of the rows it turned red."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kvseal.identity import TransformManifest
from kvseal.identity.variant import variant_of

ROOT = Path(__file__).parents[3]
CHAINED = ROOT / "tests/vectors/transform-manifest/chained.json"


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, imported as it is when it is run."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import manifest_mutants

    yield manifest_mutants
    for name in ("manifest_mutants", "manifest_proofs"):
        sys.modules.pop(name, None)


@pytest.fixture
def manifest() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(CHAINED.read_text())["manifest"]
    return value


def other(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same but for the version of the algorithm."""
    version = manifest["algorithm"]["version"] + 1
    return {**manifest, "algorithm": {**manifest["algorithm"], "version": version}}


def name_of(manifest: dict[str, Any]) -> str:
    return variant_of(TransformManifest.from_json(manifest))


def test_what_differs_in_the_field_left_out_has_one_name(
    mutants: Any, manifest: dict[str, Any]
) -> None:
    before = name_of(manifest)
    with mutants.left_out("algorithm.version"):
        assert name_of(manifest) == name_of(other(manifest))
    assert name_of(manifest) == before != name_of(other(manifest))


def test_a_field_left_out_leaves_the_others_in(mutants: Any, manifest: dict[str, Any]) -> None:
    with mutants.left_out("algorithm.name"):
        assert name_of(manifest) != name_of(other(manifest))


def test_a_part_that_is_not_there_has_no_fields_to_leave_out(
    mutants: Any, manifest: dict[str, Any]
) -> None:
    scope = {"kind": "request-local", "binding": "0" * 32}
    unasked = {**manifest, "query": None, "scope": scope}
    before = name_of(unasked)
    with mutants.left_out("query.digest"):
        assert name_of(unasked) == before


def test_every_leaf_of_a_manifest_is_left_out_once(mutants: Any, manifest: dict[str, Any]) -> None:
    paths = mutants.paths_of(manifest)
    assert len(set(paths)) == len(paths)
    assert {"schema", "scope.kind", "parameters.kernel_tokens", "format.rope.theta"} <= set(paths)


@pytest.mark.parametrize("name", list("ab"))
def test_a_changed_text_is_changed_while_it_lasts(
    mutants: Any, manifest: dict[str, Any], name: str
) -> None:
    before = name_of(manifest)
    with mutants.text_of(lambda text: text + name):
        assert name_of(manifest) == before + name
    assert name_of(manifest) == before


@pytest.mark.parametrize(
    ("name", "red", "outcome"),
    [
        ("algorithm.name", {"field-algorithm.name": "unsafe_hit"}, "caught"),
        ("algorithm.name", {}, "SURVIVED"),
        ("schema", {}, "same identity"),
        ("scope.kind", {}, "same identity"),
        ("format.kv_heads", {}, "same identity"),
        ("text of 16 characters, filled up", {}, "same identity"),
    ],
)
def test_only_a_proof_lets_a_mutant_survive(
    mutants: Any, manifest: dict[str, Any], name: str, red: dict[str, str], outcome: str
) -> None:
    assert mutants.verdict_on(name, {"red": red}, manifest)["outcome"] == outcome


def test_a_proof_that_fails_excuses_nothing(
    mutants: Any, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import manifest_proofs

    words, _ = manifest_proofs.SAME["schema"]
    monkeypatch.setitem(manifest_proofs.SAME, "schema", (words, lambda _: False))
    assert mutants.verdict_on("schema", {"red": {}}, manifest)["outcome"] == "SURVIVED"
