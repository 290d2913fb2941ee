# SPDX-License-Identifier: Apache-2.0
"""report.json of verifications: the report itself, or several, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal.report.verification_folder import StoredVerification

SCHEMA = "kvseal.verification-reports.v1"


def document(runs: Sequence[StoredVerification]) -> dict[str, Any]:
    """Return the report of one run as it is, of several as a list with their names."""
    if not runs[1:]:
        return runs[0].report
    return {
        "schema": SCHEMA,
        "runs": [{"run": run.name, "notes": list(run.notes), "report": run.report} for run in runs],
    }
