# SPDX-License-Identifier: Apache-2.0
"""The cases of the negative matrix as a table: who makes KV, who asks, what must come of it.

Plain data without engines: drivers run it, checkers judge by it, reports print it.
"""

from kvseal.workload.matrix.artifacts import ARTIFACTS, ArtifactKind
from kvseal.workload.matrix.case import (
    AFTERS,
    BACKENDS,
    Act,
    Ask,
    Case,
    Required,
    required_here,
)
from kvseal.workload.matrix.cases import CASES, case_named, chosen

__all__ = [
    "AFTERS",
    "ARTIFACTS",
    "BACKENDS",
    "CASES",
    "Act",
    "ArtifactKind",
    "Ask",
    "Case",
    "Required",
    "case_named",
    "chosen",
    "required_here",
]
