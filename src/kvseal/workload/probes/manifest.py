# SPDX-License-Identifier: Apache-2.0
"""The probe manifest: what `kvseal verify --dry-run` prints, and its JSON Schema.

Says what a run would send and what reuse should report, and is no evidence of
either. Its format is documented in docs/formats/probe-manifest.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from kvseal.canonical import digest
from kvseal.workload.probes.expected import expected_cached
from kvseal.workload.probes.generations import planned_generations
from kvseal.workload.probes.probe import Geometry, Probe

SCHEMA = "kvseal.probe-manifest.v1"


def manifest(
    probes: Sequence[Probe],
    *,
    suite: str,
    seed: int,
    max_tokens: int,
    geometry: Geometry,
    targets: Sequence[str],
) -> dict[str, Any]:
    """Return the manifest of `probes`; `targets` may be empty, for a control alone.

    Raises:
        EvidenceError: for a target that is unknown or named twice.
    """
    planned = planned_generations(suite, probes, targets)
    documents = [probe.to_json() for probe in probes]
    return {
        "schema": SCHEMA,
        "suite": suite,
        "seed": seed,
        "max_tokens": max_tokens,
        "geometry": geometry.to_json(),
        "targets": list(targets),
        "generations_planned": planned,
        "probes_sha256": digest(documents),
        "probes": [
            {**document, "expected_cached": _expected(probe, geometry, targets)}
            for document, probe in zip(documents, probes, strict=True)
        ],
    }


def _expected(
    probe: Probe, geometry: Geometry, targets: Sequence[str]
) -> dict[str, dict[str, int]]:
    return {
        target: {
            "cold": expected_cached(target, probe.tokens, geometry, probe.cold_prefix_tokens),
            "reuse": expected_cached(target, probe.tokens, geometry),
        }
        for target in targets
    }


def load_manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest."""
    name = f"{SCHEMA.removeprefix('kvseal.')}.json"
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
