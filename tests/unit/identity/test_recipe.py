# SPDX-License-Identifier: Apache-2.0
"""The variant index's record: damage and forgery are errors, and what it names is no hit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from kvseal.canonical import canonical_bytes
from kvseal.errors import EvidenceError, TransformError
from kvseal.identity import TransformManifest
from kvseal.identity.recipe import (
    MAX_ENTRIES,
    MAX_RECORD_BYTES,
    VariantRecord,
    candidates,
    decode,
    encode,
    listed_variant,
)
from kvseal.identity.scope import Proof, register_transform
from kvseal.identity.variant import variant_text

Document = Callable[..., dict[str, Any]]


@pytest.fixture
def one(document: Document) -> TransformManifest:
    return TransformManifest.from_json(document("query-scoped"))


@pytest.fixture
def two(document: Document) -> TransformManifest:
    """Another result of the same recipe."""
    return TransformManifest.from_json(document("payload"))


def record_of(*manifests: TransformManifest) -> VariantRecord:
    ordered = tuple(sorted(manifests, key=lambda manifest: manifest.digest))
    return VariantRecord(manifests[0].recipe_digest, ordered)


def listing(recipe: str, *entries: dict[str, Any]) -> bytes:
    """A record as a forger would write it."""
    body = {"schema": "kvseal.variant-index.v1", "recipe_sha256": recipe, "variants": entries}
    return canonical_bytes(body)


def entry(manifest: TransformManifest) -> dict[str, Any]:
    return {"manifest": manifest.to_json(), "manifest_sha256": manifest.digest}


def test_what_is_encoded_is_decoded(one: TransformManifest, two: TransformManifest) -> None:
    for record in (record_of(one), record_of(one, two), VariantRecord("ab" * 32, ())):
        assert decode(encode(record)) == record
        assert encode(decode(encode(record))) == encode(record)
    assert len(decode(encode(record_of(one, two))).manifests) == 2


def test_its_bytes_are_plain_canonical_json(one: TransformManifest) -> None:
    assert encode(record_of(one)) == listing(one.recipe_digest, entry(one))
    assert encode(VariantRecord("ab" * 32, ())) == (
        b'{"recipe_sha256":"' + b"ab" * 32 + b'","schema":"kvseal.variant-index.v1","variants":[]}'
    )


def test_a_manifest_stands_in_it_byte_for_byte(document: Document, codec_registered: None) -> None:
    """So a server can put stored bytes into it without reading them."""
    spoken = document("unicode")
    spoken["scope"] = {"kind": "query-scoped", "binding": spoken["query"]["digest"]}
    names = ("query-scoped", "payload", "chained", "prefix", "global")
    for whole in (spoken, *map(document, names)):
        manifest = TransformManifest.from_json(whole)
        assert b'"manifest":' + manifest.canonical_bytes in encode(record_of(manifest))


def test_a_lookup_gives_the_manifests_to_ask_for(
    one: TransformManifest, two: TransformManifest
) -> None:
    found = candidates(encode(record_of(one, two)), one.recipe_digest)
    assert found == sorted((one, two), key=lambda manifest: manifest.digest)
    assert all(type(item) is TransformManifest for item in found), "names to ask for, never KV"
    assert candidates(encode(VariantRecord(one.recipe_digest, ())), one.recipe_digest) == []


def test_every_damaged_byte_is_an_error(one: TransformManifest) -> None:
    data = encode(record_of(one))
    for place in range(len(data)):
        for flip in (1, 32, 128):
            damaged = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
            with pytest.raises(EvidenceError):
                candidates(damaged, one.recipe_digest)
    for length in range(len(data)):
        with pytest.raises(EvidenceError):
            decode(data[:length])
    for extra in (b" ", b"\n", b"x", b"\x00"):
        with pytest.raises(EvidenceError):
            decode(data + extra)


@pytest.mark.parametrize("form", [{"indent": 1}, {"separators": (", ", ": ")}])
def test_another_form_of_the_same_json_is_refused(
    form: dict[str, Any], one: TransformManifest
) -> None:
    with pytest.raises(EvidenceError, match="canonical"):
        decode(json.dumps(json.loads(encode(record_of(one))), **form).encode())


def test_fields_are_a_closed_set(one: TransformManifest) -> None:
    whole = json.loads(encode(record_of(one)))
    for key in whole:
        short = {name: item for name, item in whole.items() if name != key}
        with pytest.raises(EvidenceError) as caught:
            decode(canonical_bytes(short))
        assert caught.value.option == key
    with pytest.raises(EvidenceError) as caught:
        decode(canonical_bytes({**whole, "kv": "hit"}))
    assert caught.value.option == "kv"
    for change in ({"hit": 1}, {"manifest": None}, {"manifest_sha256": 1}, {"manifest": {}}):
        forged = {**whole["variants"][0], **change}
        with pytest.raises(EvidenceError):
            decode(canonical_bytes({**whole, "variants": [forged]}))
    for variants in (None, {}, "x", [1], [None], whole["variants"] * 2):
        with pytest.raises(EvidenceError, match="variants"):
            decode(canonical_bytes({**whole, "variants": variants}))
    for change in ({"schema": "kvseal.variant-index.v2"}, {"recipe_sha256": "x"}):
        with pytest.raises(EvidenceError) as caught:
            decode(canonical_bytes({**whole, **change}))
        assert caught.value.option in change


def test_a_record_under_another_recipe_is_an_error(one: TransformManifest) -> None:
    for record in (record_of(one), VariantRecord(one.recipe_digest, ())):
        with pytest.raises(EvidenceError, match="another recipe"):
            candidates(encode(record), "ab" * 32)


def test_a_forged_recipe_is_an_error(one: TransformManifest, document: Document) -> None:
    """The record says that a variant was made of this recipe; its manifest says otherwise."""
    whole = document("query-scoped")
    whole["parameters"]["drop_percent"] = 25
    other = TransformManifest.from_json(whole)
    with pytest.raises(EvidenceError, match="another recipe"):
        candidates(listing(one.recipe_digest, entry(other)), one.recipe_digest)


def test_a_forged_manifest_is_an_error(one: TransformManifest, two: TransformManifest) -> None:
    """Listed under the digest of the one, and it is the other; near is not enough."""
    near = one.digest[:-1] + ("0" if one.digest[-1] != "0" else "1")
    for digest in (one.digest, near):
        forged = {"manifest": two.to_json(), "manifest_sha256": digest}
        with pytest.raises(EvidenceError, match="not the one listed"):
            candidates(listing(one.recipe_digest, forged), one.recipe_digest)
    forged = {"manifest": one.to_json(), "manifest_sha256": near}
    with pytest.raises(EvidenceError, match="not the one listed"):
        candidates(listing(one.recipe_digest, forged), one.recipe_digest)


def test_request_local_variants_are_never_listed(document: Document) -> None:
    manifest = TransformManifest.from_json(document("request-local"))
    for refused in (listed_variant, record_of):
        with pytest.raises(EvidenceError, match="never listed"):
            refused(manifest)
    with pytest.raises(EvidenceError, match="never listed"):
        candidates(listing(manifest.recipe_digest, entry(manifest)), manifest.recipe_digest)


def test_what_is_listed_has_its_variant_text(one: TransformManifest) -> None:
    assert listed_variant(one) == variant_text("query-scoped", one.digest)


def test_wide_scopes_need_their_proof_here_too(
    document: Document, nothing_registered: None
) -> None:
    manifest = TransformManifest.from_json(document("prefix"))
    data = listing(manifest.recipe_digest, entry(manifest))
    for call in (lambda: listed_variant(manifest), lambda: decode(data)):
        with pytest.raises(TransformError, match="no proof"):
            call()
    algorithm = manifest.algorithm
    proof = Proof("prefix", ("source", "parameters"), "tests/unit/identity/test_recipe.py")
    register_transform(algorithm.name, algorithm.version, proof=proof)
    assert candidates(data, manifest.recipe_digest) == [manifest]


def test_order_and_number_of_entries(one: TransformManifest) -> None:
    made = [dataclasses.replace(one, payload_sha256=f"{i:064x}") for i in range(MAX_ENTRIES + 1)]
    ordered = tuple(sorted(made, key=lambda manifest: manifest.digest))
    full = VariantRecord(one.recipe_digest, ordered[:MAX_ENTRIES])
    assert decode(encode(full)) == full
    for wrong in (ordered, ordered[1::-1], (ordered[0], ordered[0])):
        with pytest.raises(EvidenceError) as caught:
            VariantRecord(one.recipe_digest, wrong)
        assert caught.value.option == "variants"


def test_a_record_too_long_is_not_read() -> None:
    with pytest.raises(EvidenceError, match="too long"):
        decode(b" " * (MAX_RECORD_BYTES + 1))
