# SPDX-License-Identifier: Apache-2.0
"""The variant index's record: damage and forgery are errors, and what it names is no hit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvseal.canonical import canonical_bytes, digest
from kvseal.errors import EvidenceError, TransformError
from kvseal.identity import TransformManifest
from kvseal.identity.recipe import (
    Entry,
    VariantRecord,
    add,
    candidates,
    decode,
    encode,
    record_of,
)
from kvseal.identity.variant import variant_text

Document = Callable[..., dict[str, Any]]


@pytest.fixture
def one(document: Document) -> TransformManifest:
    return TransformManifest.from_json(document("query-scoped"))


@pytest.fixture
def two(document: Document) -> TransformManifest:
    """Another result of the same recipe."""
    return TransformManifest.from_json(document("payload"))


def resealed(value: dict[str, Any]) -> bytes:
    """A record as a forger would leave it: with a checksum that fits."""
    body = {key: item for key, item in value.items() if key != "checksum_sha256"}
    return canonical_bytes({**body, "checksum_sha256": digest(body)})


def stored(*manifests: TransformManifest) -> Callable[[str], bytes]:
    return {manifest.digest: manifest.canonical_bytes for manifest in manifests}.__getitem__


def test_what_is_encoded_is_decoded(one: TransformManifest, two: TransformManifest) -> None:
    record = add(record_of(one), two)
    assert decode(encode(record)) == record
    assert encode(decode(encode(record))) == encode(record)
    assert len(record.variants) == 2
    assert add(record_of(two), one) == record, "the order of adding does not show"
    assert add(record, one) == record, "adding twice changes nothing"


def test_its_bytes_are_plain_canonical_json(one: TransformManifest) -> None:
    body = {
        "schema": "kvseal.variant-index.v1",
        "recipe_sha256": one.recipe_digest,
        "variants": [
            {"variant": variant_text("query-scoped", one.digest), "manifest_sha256": one.digest}
        ],
    }
    assert encode(record_of(one)) == resealed(body)


def test_a_lookup_gives_the_manifests_to_ask_for(
    one: TransformManifest, two: TransformManifest
) -> None:
    data = encode(add(record_of(one), two))
    found = candidates(data, one.recipe_digest, stored(one, two))
    assert found == sorted((one, two), key=lambda manifest: manifest.digest)
    assert all(type(item) is TransformManifest for item in found), "names to ask for, never KV"


def test_every_damaged_byte_is_an_error(one: TransformManifest) -> None:
    data = encode(record_of(one))
    for place in range(len(data)):
        for flip in (1, 32, 128):
            damaged = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
            with pytest.raises(EvidenceError):
                candidates(damaged, one.recipe_digest, stored(one))
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
        decode(resealed({**whole, "kv": "hit"}))
    assert caught.value.option == "kv"
    for change in ({"hit": 1}, {"variant": None}, {"manifest_sha256": 1}):
        entry = {**whole["variants"][0], **change}
        with pytest.raises(EvidenceError, match=r"variants\[\]"):
            decode(resealed({**whole, "variants": [entry]}))
    for variants in (None, [], {}, "x", [1], [None], whole["variants"] * 2):
        with pytest.raises(EvidenceError, match="variants"):
            decode(resealed({**whole, "variants": variants}))
    for change in ({"schema": "kvseal.variant-index.v2"}, {"recipe_sha256": "x"}):
        with pytest.raises(EvidenceError) as caught:
            decode(resealed({**whole, **change}))
        assert caught.value.option in change


def test_a_wrong_checksum_is_an_error(one: TransformManifest) -> None:
    whole = json.loads(encode(record_of(one)))
    for wrong in ("0" * 64, "", None, whole["checksum_sha256"].upper()):
        with pytest.raises(EvidenceError, match="checksum_sha256"):
            decode(canonical_bytes({**whole, "checksum_sha256": wrong}))


def test_a_record_under_another_recipe_is_an_error(one: TransformManifest) -> None:
    asked: list[str] = []
    with pytest.raises(EvidenceError, match="another recipe"):
        candidates(encode(record_of(one)), "ab" * 32, lambda name: asked.append(name) or b"")
    assert not asked, "nothing it lists is even looked for"


def test_a_forged_recipe_is_an_error(one: TransformManifest, document: Document) -> None:
    """The record says that a variant was made of this recipe; its manifest says otherwise."""
    whole = document("query-scoped")
    whole["parameters"]["drop_percent"] = 25
    other = TransformManifest.from_json(whole)
    forged = json.loads(encode(record_of(other))) | {"recipe_sha256": one.recipe_digest}
    with pytest.raises(EvidenceError, match="another recipe"):
        candidates(resealed(forged), one.recipe_digest, stored(one, other))


def test_a_forged_manifest_is_an_error(one: TransformManifest, two: TransformManifest) -> None:
    def wrong(_: str) -> bytes:
        return two.canonical_bytes

    with pytest.raises(EvidenceError, match="not the one listed"):
        candidates(encode(record_of(one)), one.recipe_digest, wrong)
    with pytest.raises(EvidenceError):
        candidates(encode(record_of(one)), one.recipe_digest, lambda _: b"{}")


def test_a_missing_manifest_is_an_error(one: TransformManifest) -> None:
    with pytest.raises(KeyError):
        candidates(encode(record_of(one)), one.recipe_digest, stored())


def test_a_forged_scope_is_an_error(one: TransformManifest, codec_registered: None) -> None:
    forged = json.loads(encode(record_of(one)))
    forged["variants"][0]["variant"] = variant_text("global", one.digest)
    with pytest.raises(EvidenceError, match="another scope"):
        candidates(resealed(forged), one.recipe_digest, stored(one))


def test_variant_and_digest_belong_together(one: TransformManifest, two: TransformManifest) -> None:
    with pytest.raises(EvidenceError, match="belong together"):
        Entry(variant_text("query-scoped", one.digest), two.digest)
    # The same first 160 bits are not enough to be the same manifest.
    near = one.digest[:-1] + ("0" if one.digest[-1] != "0" else "1")
    forged = json.loads(encode(record_of(one)))
    forged["variants"][0]["manifest_sha256"] = near
    with pytest.raises(EvidenceError, match="not the one listed"):
        candidates(resealed(forged), one.recipe_digest, lambda _: one.canonical_bytes)


def test_request_local_variants_are_never_listed(document: Document) -> None:
    manifest = TransformManifest.from_json(document("request-local"))
    with pytest.raises(EvidenceError, match="never listed"):
        record_of(manifest)


def test_another_recipe_is_not_added(one: TransformManifest, document: Document) -> None:
    other = TransformManifest.from_json(document("chained"))
    with pytest.raises(EvidenceError, match="another recipe"):
        add(record_of(one), other)


def test_wide_scopes_need_their_proof_here_too(
    document: Document, nothing_registered: None
) -> None:
    manifest = TransformManifest.from_json(document("prefix"))
    with pytest.raises(TransformError, match="no proof"):
        record_of(manifest)
    entry = Entry(variant_text("prefix", manifest.digest), manifest.digest)
    data = encode(VariantRecord(manifest.recipe_digest, (entry,)))
    with pytest.raises(TransformError, match="no proof"):
        candidates(data, manifest.recipe_digest, stored(manifest))


def test_order_scope_and_number_of_entries() -> None:
    digests = [f"{i:064x}" for i in range(65)]
    entries = tuple(Entry(variant_text("query-scoped", d), d) for d in digests)
    full = VariantRecord("ab" * 32, entries[:64])
    assert decode(encode(full)) == full
    mixed = (entries[0], Entry(variant_text("prefix", digests[1]), digests[1]))
    for wrong in (entries, entries[1::-1], (entries[0], entries[0]), (), mixed):
        with pytest.raises(EvidenceError) as caught:
            VariantRecord("ab" * 32, wrong)
        assert caught.value.option == "variants"


def test_a_record_too_long_is_not_read() -> None:
    with pytest.raises(EvidenceError, match="too long"):
        decode(b" " * 16385)
