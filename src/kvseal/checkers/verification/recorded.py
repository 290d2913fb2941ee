# SPDX-License-Identifier: Apache-2.0
"""Make an acceptance fixture of a report: what one paired run gave, for others to be held to.

Every figure that the report has is asserted. No path of the machine goes into it.
Called by `kvseal check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvseal.checkers.verification.fixture import EQUAL, SCHEMA
from kvseal.errors import EvidenceError


def fixture_of(report: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return the fixture document of a whole report.

    Raises:
        EvidenceError: the run did not reach its end, or had no target.
    """
    if not report["complete"] or not report["targets"]:
        raise EvidenceError(
            "only a whole run with a target can be recorded as a fixture",
            value=f"complete: {report['complete']}, targets: {len(report['targets'])}",
            expected="a run that reached its end",
        )
    results = {
        target["target"]: {entry["probe"]: entry for entry in target["probes"]}
        for target in report["targets"]
    }
    return {
        "schema": SCHEMA,
        "name": name,
        "recorded": {
            "machine": _machine(report),
            "date": str(report["created_at"])[:10],
            "versions": {
                name: str(report["environment"]["distributions"][name])
                for name in sorted(report["environment"]["distributions"])
            },
        },
        "model": _model(report["request"]["model"]),
        "targets": {target["target"]: target["verdict"] for target in report["targets"]},
        "probes": [
            {
                "tokens": probe["tokens"],
                "reuse_count": probe["reuse_count"],
                "format": probe["prompt_format"],
                "expected": {
                    target: _expected(entries[probe["id"]]) for target, entries in results.items()
                },
            }
            for probe in report["probes"]
        ],
        "exit_status": report["exit_status"],
    }


def _model(identity: Mapping[str, Any]) -> str:
    """Return which model it was; where a directory lay says nothing, and may be private."""
    revision = str(identity["revision"])
    if revision.startswith("sha256:"):
        return f"a directory, files {revision}"
    return f"{identity['requested']} at {revision}"


def _machine(report: Mapping[str, Any]) -> str:
    device = (report["control"]["engine"] or {}).get("device", {})
    return str(device.get("name") or report["host"]["cpu_model"]["value"])


def _expected(result: Mapping[str, Any]) -> dict[str, Any]:
    answers = result["answers"]
    return {
        "verdict": result["verdict"],
        "cached_tokens": [answer["cached_tokens"] for answer in answers],
        "first_difference_control": [
            EQUAL if answer["equal_control"] else answer["first_difference_control"]
            for answer in answers
        ],
    }
