# SPDX-License-Identifier: Apache-2.0
"""Probes of the KV-reuse verifier: seeded prompts whose lengths stand at cache boundaries.

Made as token IDs from a suite's table, the cache geometry and the model's own
tokenizer. Nothing here starts an engine, judges an answer or reads a clock.
Called by the verify driver and its dry run; the checkers read probes back.
"""

from kvseal.spec.contracts import TARGETS
from kvseal.workload.probes.build import build_probes
from kvseal.workload.probes.expected import expected_cached
from kvseal.workload.probes.generations import control_repetitions, planned_generations
from kvseal.workload.probes.manifest import load_manifest_schema, manifest
from kvseal.workload.probes.probe import FORMATS, Geometry, Probe
from kvseal.workload.probes.tokenizer import ModelTokenizer, ProbeTokenizer, load_tokenizer

__all__ = [
    "FORMATS",
    "TARGETS",
    "Geometry",
    "ModelTokenizer",
    "Probe",
    "ProbeTokenizer",
    "build_probes",
    "control_repetitions",
    "expected_cached",
    "load_manifest_schema",
    "load_tokenizer",
    "manifest",
    "planned_generations",
]
