# SPDX-License-Identifier: Apache-2.0
"""The manifest that a dry run prints: held to its schema, and documented field by field."""

from pathlib import Path

import pytest

from kvseal.canonical import canonical_bytes
from kvseal.workload.probes import Geometry, Probe, load_manifest_schema, manifest
from kvseal.workload.probes.suites import TABLES

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema lives in the dev environment")

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "probe-manifest.md"


def made(build, targets=("lmcache", "native"), suite="standard", **changes):
    geometry = Geometry(256, 16, 1 << 20)
    return manifest(
        build(suite, **changes),
        suite=suite,
        seed=0,
        max_tokens=16,
        geometry=geometry,
        targets=targets,
    )


@pytest.mark.parametrize("targets", [(), ("native",), ("lmcache", "native"), ("mp",)])
def test_it_keeps_to_its_schema_and_has_canonical_bytes(build, targets):
    document = made(build, targets)
    schema = load_manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert schema["$id"] == document["schema"]
    assert canonical_bytes(document) == canonical_bytes(made(build, targets))


def test_probes_have_expected_counts_for_each_target(build):
    document = made(build)
    by_id = {probe["id"]: probe for probe in document["probes"]}
    assert by_id["raw-512-x3"]["expected_cached"] == {
        "lmcache": {"cold": 0, "reuse": 511},
        "native": {"cold": 0, "reuse": 496},
    }
    assert by_id["chat-704-x1"]["expected_cached"] == {
        "lmcache": {"cold": 512, "reuse": 512},
        "native": {"cold": 512, "reuse": 688},
    }


def test_probes_can_be_read_back(build):
    probes = made(build)["probes"]
    for probe in probes:
        del probe["expected_cached"]
    assert tuple(map(Probe.from_json, probes)) == build()


def test_the_digest_changes_with_the_seed_and_nothing_else(build):
    first = made(build)["probes_sha256"]
    assert first == made(build, targets=())["probes_sha256"]
    assert first != made(build, seed=1)["probes_sha256"]


def test_a_wrong_document_is_told(build):
    document = made(build)
    document["probes"][0]["tokens"] = "255"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, load_manifest_schema())


def test_the_page_names_every_field_and_case():
    text = PAGE.read_text(encoding="utf-8")
    schema = load_manifest_schema()
    fields = {*schema["properties"], *schema["$defs"]["probe"]["properties"]}
    fields |= set(schema["properties"]["geometry"]["properties"])
    cases = {case.slug for table in TABLES.values() for case in table}
    for name in fields | cases:
        assert f"`{name}`" in text, name
