# SPDX-License-Identifier: Apache-2.0
"""report.json: the results of the reported runs, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal.report.run_folder import RunFolder
from kvseal.report.words import verdict_sentence

SCHEMA = "kvseal.report.v1"


def document(runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Return the report of `runs` as JSON values."""
    return {
        "schema": SCHEMA,
        "runs": [
            {
                "run": run.name,
                "sentence": verdict_sentence(run.result),
                "unlisted_files": list(run.unlisted),
                "patches": run.patches,
                "result": run.result,
            }
            for run in runs
        ],
    }
