# SPDX-License-Identifier: Apache-2.0
"""kvseal against golden vectors that another program made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvseal.canonical import canonical_bytes, sha256_hex
from kvseal.identity import TransformManifest, decorate, parse_variant, split, variant_of
from kvseal.identity.arrays import nested_uint32_bytes, source_sha256, uint32_bytes
from kvseal.identity.variant import check_variant, server_model_name, variant_text
from kvseal.records.schemas import validate

FOLDER = Path(__file__).parents[2] / "vectors" / "transform-manifest"
PAGE = Path(__file__).parents[3] / "docs" / "formats" / "transform-manifest.md"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_digests_and_texts(
    name: str, vectors: dict[str, dict[str, Any]], codec_registered: None
) -> None:
    vector = vectors[name]
    manifest = TransformManifest.from_json(vector["manifest"])
    assert manifest.to_json() == vector["manifest"]
    assert manifest.canonical_bytes.decode("utf-8") == vector["canonical"]
    assert manifest.digest == vector["manifest_sha256"]
    assert manifest.recipe_digest == vector["recipe_sha256"]
    assert variant_of(manifest) == vector["variant"]
    assert variant_text(manifest.scope.kind, vector["manifest_sha256"]) == vector["variant"]
    assert parse_variant(vector["variant"]) == (manifest.scope.kind, manifest.digest[:40])
    check_variant(vector["variant"], manifest)
    model = manifest.format.model
    assert decorate(model, vector["variant"]) == vector["decorated"]
    assert server_model_name(model, vector["variant"], query=True) == vector["decorated_query"]
    assert split(vector["decorated_query"]) == (model + "##query", vector["variant"])


@pytest.mark.parametrize("name", NAMES)
def test_reading_back_gives_the_same_manifest(
    name: str, vectors: dict[str, dict[str, Any]]
) -> None:
    text = vectors[name]["canonical"]
    manifest = TransformManifest.parse(text)
    assert manifest == TransformManifest.from_json(vectors[name]["manifest"])
    assert TransformManifest.parse(text.encode("utf-8")).canonical_bytes == text.encode("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_digests_of_the_arrays(name: str, vectors: dict[str, dict[str, Any]]) -> None:
    arrays, whole = vectors[name]["arrays"], vectors[name]["manifest"]
    manifest = TransformManifest.from_json(whole)
    rows = manifest.format.rows(manifest.retained.granularity)
    assert whole["source"]["prefix_sha256"] == source_sha256(
        arrays["source_token_ids"], manifest.source.parent
    )
    for key, expected in (
        ("retained_positions", manifest.retained.positions_sha256),
        ("new_positions", manifest.position_map.new_positions_sha256),
    ):
        assert sha256_hex(nested_uint32_bytes(arrays[key], rows, key)) == expected
    logical = uint32_bytes(arrays["logical_token_ids"], "logical")
    assert sha256_hex(logical) == manifest.logical_tokens_sha256


@pytest.mark.parametrize("name", NAMES)
def test_the_published_schema_takes_them(name: str, vectors: dict[str, dict[str, Any]]) -> None:
    validate(vectors[name]["manifest"], "transform-manifest.v1")


def test_the_vectors_are_what_their_script_makes(tmp_path: Path) -> None:
    script = FOLDER / "make.py"
    assert "kvseal." not in script.read_text(encoding="utf-8").replace(
        '"kvseal.transform-', ""
    ).replace("tests/", ""), "the script must not use kvseal"
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in tmp_path.iterdir()) == NAMES
    for name in NAMES:
        made = (tmp_path / f"{name}.json").read_bytes()
        assert made == (FOLDER / f"{name}.json").read_bytes(), name


def test_all_vectors_differ(vectors: dict[str, dict[str, Any]]) -> None:
    for key in ("canonical", "manifest_sha256", "variant", "decorated"):
        assert len({vector[key] for vector in vectors.values()}) == len(vectors)


@pytest.mark.parametrize("name", NAMES)
def test_the_ten_lines_of_the_page_say_the_same(
    name: str, vectors: dict[str, dict[str, Any]]
) -> None:
    (code,) = (
        part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]
    )
    assert "kvseal" not in code.replace("kvseal.transform-recipe.v1", "")
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(FOLDER / f"{name}.json")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    vector = vectors[name]
    expected = [vector["manifest_sha256"], vector["recipe_sha256"], vector["variant"]]
    assert done.stdout.split() == expected, done.stderr


def test_the_page_names_every_field(vectors: dict[str, dict[str, Any]]) -> None:
    text = PAGE.read_text(encoding="utf-8")

    def names(value: Any, at: str) -> list[str]:
        found = []
        for key, item in value.items():
            path = f"{at}.{key}".lstrip(".")
            inner = isinstance(item, dict) and key not in ("rope", "tensor_parallel", "parameters")
            found += names(item, path) if inner else [path]
        return found

    paths = names(vectors["query-scoped"]["manifest"], "")
    assert len(paths) > 20
    for path in paths:
        assert f"`{path}`" in text, path
    for key in ("type", "theta", "scaling", "size", "kv_heads_per_rank"):
        assert f"`{key}`" in text, key


def test_canonical_bytes_are_those_of_the_document(vectors: dict[str, dict[str, Any]]) -> None:
    for vector in vectors.values():
        assert canonical_bytes(vector["manifest"]).decode("utf-8") == vector["canonical"]
