# SPDX-License-Identifier: Apache-2.0
"""The table of cases for people and programs: what `kvseal matrix --list` prints."""

from __future__ import annotations

from typing import Any

from kvseal.report.console import table
from kvseal.workload.matrix import AFTERS, ARTIFACTS, BACKENDS, CASES, Act, Ask, Case

SCHEMA = "kvseal.matrix-cases.v1"
HEADINGS = ("case", "group", "stored", "asked by", "must be", "cells")


def console() -> str:
    """Return the table as lines of text, and how many cells it has."""
    rows = [
        (case.name, case.group, case.producer, case.consumer, case.required.value, _cells(case))
        for case in CASES
    ]
    cells = sum(len(case.backends) * len(case.afters) for case in CASES)
    return "\n".join(
        [
            *table([HEADINGS, *rows], left=5),
            "",
            f"{len(CASES)} cases, {cells} cells of {len(CASES) * len(BACKENDS) * len(AFTERS)}: "
            f"backends {', '.join(BACKENDS)}; restarted before asking {', '.join(AFTERS)}.",
            "A request-local artifact, and whatever a restart takes away, has to miss instead.",
        ]
    )


def document() -> dict[str, Any]:
    """Return the table as JSON values."""
    return {
        "schema": SCHEMA,
        "backends": list(BACKENDS),
        "afters": list(AFTERS),
        "artifacts": [
            {"name": name, "kind": kind.kind, "request_local": kind.local, "title": kind.title}
            for name, kind in ARTIFACTS.items()
        ],
        "cases": [_case(case) for case in CASES],
    }


def _cells(case: Case) -> str:
    return str(len(case.backends) * len(case.afters))


def _case(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "group": case.group,
        "producer": case.producer,
        "consumer": case.consumer,
        "required": case.required.value,
        "store": list(case.store),
        "refused_stores": list(case.refused_stores),
        "lie": case.lie,
        "steps": [_step(step) for step in case.steps],
        "backends": list(case.backends),
        "afters": list(case.afters),
        "elsewhere": case.elsewhere,
    }


def _step(step: Ask | Act) -> dict[str, Any]:
    both = {"required": step.required.value, "before_restart": step.before_restart}
    if isinstance(step, Act):
        return {"what": step.kind, "artifact": step.artifact, "expected": step.expected, **both}
    return {
        "what": "ask",
        "artifact": step.prompt,
        "identity": step.identity,
        "salt": step.salt,
        "suffix_chunks": step.suffix_chunks,
        "descendants": step.descendants,
        **both,
    }
