# SPDX-License-Identifier: Apache-2.0
"""Probes and geometries to JSON and back; records that are not whole are refused."""

import json

import pytest

from kvseal.canonical import token_ids_sha256
from kvseal.errors import EvidenceError
from kvseal.workload.probes import Geometry, Probe


def document(**changes):
    probe = Probe("raw-3-x1", "chunk", "raw", 1, "raw-3", "raw-3-x1", (5, 6, 7), 0)
    return {**probe.to_json(), **changes}


def test_all_probes_of_a_suite_come_back_equal(build):
    for probe in build():
        assert Probe.from_json(json.loads(json.dumps(probe.to_json()))) == probe


def test_the_document_has_length_and_digest():
    assert document()["tokens"] == 3
    assert document()["token_ids_sha256"] == token_ids_sha256([5, 6, 7])


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids_sha256": "0" * 64},
        {"token_ids_sha256": None},
        {"token_ids": [5, 6, 8]},
        {"tokens": 4},
        {"tokens": 3.0},
        {"note": ""},
        {"id": ""},
        {"scope": None},
        {"prompt_format": "both"},
        {"reuse_count": 0},
        {"reuse_count": True},
        {"token_ids": []},
        {"token_ids": [5, 6, -7]},
        {"token_ids": [5, 6, 1 << 32]},
        {"token_ids": "567"},
        {"cold_prefix_tokens": 3},
        {"cold_prefix_tokens": -1},
    ],
)
def test_a_changed_probe_is_refused(changes):
    with pytest.raises(EvidenceError):
        Probe.from_json(document(**changes))


@pytest.mark.parametrize("field", sorted(document()))
def test_a_probe_without_a_field_is_refused(field):
    whole = document()
    del whole[field]
    with pytest.raises(EvidenceError, match=f"-{field}"):
        Probe.from_json(whole)


def test_a_probe_is_an_object():
    with pytest.raises(EvidenceError, match="JSON object"):
        Probe.from_json([])


def test_a_geometry_comes_back_equal():
    geometry = Geometry(256, 16, 2048)
    assert Geometry.from_json(geometry.to_json()) == geometry


@pytest.mark.parametrize(
    "changes", [{"chunk_tokens": 0}, {"block_tokens": True}, {"max_model_len": 2.0}, {"other": 1}]
)
def test_a_wrong_geometry_is_refused(changes):
    with pytest.raises(EvidenceError):
        Geometry.from_json({**Geometry(256, 16, 2048).to_json(), **changes})
