# SPDX-License-Identifier: Apache-2.0
"""The result of a matrix run, `kvseal.matrix-result.v1`, from its spec, history and the table.

No clock is read and no file: the same inputs always give the same result, whole
also for a run that was broken off anywhere. Called by `kvseal matrix`, and by
whoever judges a stored run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kvseal.checkers.matrix.artifacts import check_artifacts
from kvseal.checkers.matrix.cells import CellResult, judge_cell
from kvseal.checkers.matrix.evidence import Evidence, sort_evidence
from kvseal.checkers.matrix.mixed import judge_mixed
from kvseal.checkers.matrix.plan import NotRun, Spec, afters_of, backends_of, not_planned
from kvseal.checkers.matrix.prompts import prompts_of
from kvseal.checkers.matrix.reasons import Outcome
from kvseal.checkers.matrix.run import check_run
from kvseal.checkers.matrix.truth import collect_truth
from kvseal.records.history import History
from kvseal.records.result import VERSION_FIELDS
from kvseal.verdict import Verdict, merge
from kvseal.workload.matrix import ARTIFACTS, CASES

SCHEMA = "kvseal.matrix-result.v1"

COUNTED = {
    Outcome.PASSED: "passed",
    Outcome.UNSAFE_HIT: "unsafe_hits",
    Outcome.WRONG_ANSWER: "wrong_answers",
    Outcome.NOT_REFUSED: "not_refused",
    Outcome.LOST_HIT: "lost_hits",
    Outcome.NOT_SEEN: "not_seen",
    Outcome.INCONCLUSIVE: "inconclusive",
}
"""Under which name cells of an outcome are counted; together they are all cells."""


def judge(spec: Spec, history: History) -> dict[str, Any]:
    """Return the result of `history` as a matrix run of `spec`.

    Never raises for what a history holds: what can't be judged is a reason.
    """
    evidence = sort_evidence(spec, history)
    truth, prompts = collect_truth(history), prompts_of(evidence)
    results = [judge_cell(evidence, truth, prompts, place) for place in evidence.places]
    mixed = judge_mixed(evidence, truth)
    reasons = [
        *check_run(evidence),
        *check_artifacts(evidence),
        *truth.reasons,
        *(entry for result in results for entry in result.reasons),
        *mixed.reasons,
    ]
    verdict = merge(entry.outcome.verdict for entry in reasons) if reasons else Verdict.PASS
    not_run = [*not_planned(spec), *_merged(evidence.left_out.values())]
    environment = next(iter(history.named("environment")), None)
    return {
        "schema": SCHEMA,
        "created_at": history.events[-1].at if history.events else None,
        "spec_sha256": spec.sha256(),
        "verdict": verdict.value,
        "reasons": [entry.to_json() for entry in reasons],
        "counts": {
            "cells": len(results),
            **_counts(results),
            "not_run": sum(block.cells for block in not_run),
        },
        "weak_answers": sum(result.weak for result in results),
        "identity": spec.matrix.identity,
        "backends": list(backends_of(spec)),
        "afters": list(afters_of(spec)),
        "rows": _rows(results),
        "artifacts": _artifacts(evidence),
        "not_run": [block.to_json() for block in not_run],
        "mixed": mixed.figures,
        "versions": {
            name: None if environment is None else environment[name] for name in VERSION_FIELDS
        },
        "environment": {} if environment is None else dict(environment["details"]),
    }


def verdict_of(result: dict[str, Any]) -> Verdict:
    """Return the verdict of a result, for its exit status."""
    return Verdict(result["verdict"])


def _counts(results: list[CellResult]) -> dict[str, int]:
    seen = Counter(result.outcome for result in results)
    return {name: seen[outcome] for outcome, name in COUNTED.items()}


def _rows(results: list[CellResult]) -> list[dict[str, Any]]:
    return [
        {
            "case": case.name,
            "group": case.group,
            "producer": case.producer,
            "consumer": case.consumer,
            "required": case.required.value,
            "cells": [result.to_json() for result in results if result.place.case == case.name],
        }
        for case in CASES
    ]


def _artifacts(evidence: Evidence) -> list[dict[str, Any]]:
    made = evidence.artifacts
    return [
        {
            "name": name,
            "title": kind.title,
            "kind": kind.kind,
            "request_local": kind.local,
            **{
                field: made[name][field] if name in made else None
                for field in (
                    "tokens", "source_tokens", "variant", "manifest_sha256", "token_ids_sha256",
                    "payload_sha256",
                )
            },
        }
        for name, kind in ARTIFACTS.items()
    ]  # fmt: skip


def _merged(blocks: Iterable[NotRun]) -> list[NotRun]:
    """Return what the driver left out, a block for each case, backend and reason."""
    afters: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for block in blocks:
        afters.setdefault((block.case, block.backends, block.reason), []).extend(block.afters)
    return [
        NotRun(case, backends, tuple(names), "driver", why)
        for (case, backends, why), names in afters.items()
    ]
