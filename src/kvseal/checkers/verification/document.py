# SPDX-License-Identifier: Apache-2.0
"""The report of a verification, `efim.kv-reuse-verification.v1`, from its history alone.

No clock is read and no file: the same history always gives the same report,
whole also for a run that was broken off anywhere. It holds no time but
`created_at` and makes no claim about speed or cost. Called after each probe by
`kvseal verify`, and by whoever judges a stored run again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvseal.checkers.verification.acceptance import compare
from kvseal.checkers.verification.evidence import Evidence, sort_evidence
from kvseal.checkers.verification.fixture import Fixture, parse_fixture
from kvseal.checkers.verification.reasons import Reason, reason
from kvseal.checkers.verification.run import check_run, deviations, unaccepted
from kvseal.checkers.verification.targets import TargetResult, judge_control, judge_target
from kvseal.errors import OptionError
from kvseal.records.history import History
from kvseal.spec.contracts import CONTROL
from kvseal.verdict import Verdict, merge

SCHEMA = "efim.kv-reuse-verification.v1"
CONTROL_ONLY_PASS = "control_only_pass"  # noqa: S105  (a verdict, no password)


def document(history: History) -> dict[str, Any]:
    """Return the report of `history`.

    `verdict` is PASS, FAIL or INCONCLUSIVE; or control_only_pass, so that nobody
    takes a run without any target for a pass of reuse. Never raises for what a
    history holds: what can't be judged is a reason.
    """
    evidence = sort_evidence(history)
    run = list(check_run(evidence))
    control = judge_control(evidence, run)
    targets = [judge_target(evidence, target, run) for target in evidence.request.targets]
    reasons = [entry for entry in run if entry.target not in (CONTROL, *evidence.request.targets)]
    fixture = _fixture(evidence, reasons)
    reasons += [entry for result in (control, *targets) for entry in result.reasons]
    verdict = merge(entry.verdict for entry in reasons) if reasons else Verdict.PASS
    tested = bool(targets)
    entries = [_target(evidence, result) for result in targets]
    probes = [probe.to_json() for probe in evidence.plan.probes.values()]
    started, request = evidence.started, evidence.request
    interrupted = history.named("interrupted")
    last = history.events[-1].name if history.events else None
    complete = last == "verification_finished" and not history.truncated
    return {
        "schema": SCHEMA,
        "created_at": history.events[-1].at if history.events else None,
        "kvseal_version": started["kvseal_version"] if started else None,
        "verdict": verdict.value if tested or verdict is not Verdict.PASS else CONTROL_ONLY_PASS,
        "exit_status": verdict.exit_status,
        "reuse_tested": any(result.reused for result in targets),
        "claim_eligible": False,
        "complete": complete,
        "interrupted": interrupted[0]["signal"] if interrupted else None,
        "reasons": [entry.to_json() for entry in reasons],
        "notes": _notes(evidence),
        "contract": dict(request.contract),
        "request": dict(request.document),
        "geometry": dict(evidence.manifest["geometry"]) if evidence.manifest else None,
        "sampling": dict(evidence.manifest["sampling"]) if evidence.manifest else None,
        "environment": dict(evidence.environment["details"]) if evidence.environment else None,
        "host": dict(started["host"]) if started else None,
        "generations": {
            "planned": dict(evidence.plan.generations),
            "completed": _generations(history),
        },
        "probes": probes,
        "control": _target(evidence, control),
        "targets": entries,
        "acceptance": None
        if fixture is None
        else compare(fixture, entries, probes, verdict.exit_status, complete=complete),
        "errors": [
            {"target": event["target"], "where": event["where"], "message": event["message"]}
            for event in history.named("error")
        ],
        "evidence": {
            "directory": request.directory,
            "logs": {target: event["log"] for target, event in evidence.ends.items()},
        },
    }


def _fixture(evidence: Evidence, reasons: list[Reason]) -> Fixture | None:
    recorded = evidence.request.fixture
    if recorded is None:
        return None
    try:
        return parse_fixture(recorded.get("document"))
    except OptionError as error:
        reasons.append(reason("acceptance.unusable", problem=error.message))
        return None


def _notes(evidence: Evidence) -> list[dict[str, str]]:
    """Return what a reader of the verdict has to know though it does not change it."""
    open_ones = unaccepted(evidence)
    notes = evidence.request.document.get("notes")
    return [
        *(
            {"code": "contract.deviation", "text": f"accepted deviation from the contract: {text}"}
            for text in deviations(evidence)
            if text not in open_ones
        ),
        *(
            {"code": "request.note", "text": str(note)}
            for note in (notes if isinstance(notes, (list, tuple)) else ())
        ),
    ]


def _generations(history: History) -> dict[str, int]:
    """Count every answer that came, also one that counts for nothing."""
    counts = Counter(event["target"] for event in history.named("answer"))
    return {**counts, "total": sum(counts.values())}


def _target(evidence: Evidence, result: TargetResult) -> dict[str, Any]:
    target = result.target
    start, end = evidence.starts.get(target), evidence.ends.get(target)
    finished = bool(evidence.of("target_finished", target))
    started = bool(evidence.of("target_started", target))
    state = "finished" if finished else "started" if started else "not_started"
    return {
        "target": target,
        "verdict": result.verdict,
        "state": state,
        "reused": result.reused,
        "engine": dict(start["engine"]) if start else None,
        "process_status": end["status"] if end else None,
        "log": end["log"] if end else None,
        "generations": {
            "planned": evidence.plan.generations.get(target, 0),
            "completed": len(evidence.of("answer", target)),
        },
        "warnings": [
            {"probe": event["probe"], "line": event["line"]}
            for event in evidence.of("engine_warning", target)
        ],
        "disqualified": [
            {"probe": event["probe"], "reason": event["reason"]}
            for event in evidence.of("disqualified", target)
        ],
        "probes": list(result.probes),
    }
