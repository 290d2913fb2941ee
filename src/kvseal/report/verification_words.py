# SPDX-License-Identifier: Apache-2.0
"""A verification in words and rows, the same for terminal, Markdown and HTML.

Takes the report document (efim.kv-reuse-verification.v1) and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.report.verification_reasons import Report, grouped, listed
from kvseal.report.words import number

BOUNDED = (
    "This is a bounded result, for this model, machine and set of probes; it is no claim about "
    "others, nor about speed or cost."
)
TARGET_NAMES = {
    "control": "the control",
    "native": "native prefix caching",
    "lmcache": "LMCache in the engine's process",
    "mp": "LMCache's server",
}
FIGURES = {
    "cached_tokens": "cached tokens",
    "exit_status": "exit status",
    "first_difference_control": "first difference from control",
}
TARGET_HEADINGS = ("target", "verdict", "probes passed", "answers", "cached tokens when reusing")
PROBE_HEADINGS = (
    "target", "probe", "verdict", "state", "cached tokens", "first difference from control",
)  # fmt: skip


def sentence(report: Report) -> str:
    """Return what the verdict means, in one or two sentences; BOUNDED says how far it goes."""
    if report["verdict"] == "PASS":
        names = listed([TARGET_NAMES[target["target"]] for target in report["targets"]])
        return (
            f"Each answer from KV reused by {names} is, token for token, the answer computed with "
            "no cache."
        )
    if report["verdict"] == "control_only_pass":
        return "No reuse was tested: the control alone answered, whole and stably."
    first = grouped(report)[0]
    if report["verdict"] == "FAIL":
        return (
            "Reused KV gave another answer than computing with no cache, on "
            f"{listed(_failed(report))}. The first: {first}."
        )
    return (
        "This run does not show whether reuse is right, because something that must be known is "
        f"not: {first}."
    )


def _failed(report: Report) -> list[str]:
    return [
        f"{failed} of {len(target['probes'])} probes of {TARGET_NAMES[target['target']]}"
        for target in report["targets"]
        if (failed := sum(probe["verdict"] == "fail" for probe in target["probes"]))
    ]


def target_rows(report: Report) -> list[tuple[str, ...]]:
    """Return control and targets as rows of TARGET_HEADINGS."""
    return [_target(target) for target in (report["control"], *report["targets"])]


def _target(target: Mapping[str, Any]) -> tuple[str, ...]:
    probes, count = target["probes"], target["generations"]
    passed = sum(probe["verdict"] == "pass" for probe in probes)
    equal = sum(probe["verdict"] == "control_match" for probe in probes)
    if target["target"] == "control":
        shown = ""
    else:
        # Where nothing can be reused an equal answer is right, and yet no reuse that passed.
        shown = f"{passed} of {len(probes)}" + (f", {equal} with nothing to reuse" if equal else "")
    return (
        target["target"],
        target["verdict"],
        shown,
        f"{count['completed']} of {count['planned']}",
        _hits(probes),
    )


def _hits(probes: Sequence[Mapping[str, Any]]) -> str:
    answers = [
        answer for probe in probes for answer in probe["answers"] if answer["kind"] == "reuse"
    ]
    hits = sorted({answer["cached_tokens"] for answer in answers if answer["cached_tokens"]})
    if not answers:
        return ""
    span = "none" if not hits else str(hits[0]) if hits[-1] == hits[0] else f"{hits[0]}–{hits[-1]}"
    hit = sum(bool(answer["cached_tokens"]) for answer in answers)
    return f"{span}, in {hit} of {len(answers)} answers"


def probe_rows(report: Report) -> list[tuple[str, ...]]:
    """Return each probe of each target as a row of PROBE_HEADINGS."""
    return [
        (
            target["target"],
            probe["probe"],
            probe["verdict"],
            probe["state"].replace("_", " "),
            ", ".join(number(answer["cached_tokens"], 9) for answer in probe["answers"]),
            ", ".join(map(_difference, probe["answers"])),
        )
        for target in report["targets"]
        for probe in target["probes"]
    ]


def _difference(answer: Mapping[str, Any]) -> str:
    if answer["state"] != "answered":
        return "no answer"
    if answer["equal_control"] is None:
        return "no control"
    found = answer["difference"]
    return "none" if found is None else f"at {found['index']}"


def acceptance_lines(report: Report) -> list[str]:
    """Return how the run compares with its acceptance fixture, if it has one."""
    acceptance = report["acceptance"]
    if acceptance is None:
        return []
    if acceptance["matched"]:
        return [f"acceptance: matches {acceptance['fixture']}"]
    lines = [f"acceptance: does not match {acceptance['fixture']}"]
    for entry in acceptance["differences"]:
        about = ", ".join(filter(None, (entry["target"], entry["probe"])))
        place = "" if entry["answer"] is None else f" of answer {entry['answer']}"
        lines.append(
            f"{about + ': ' if about else ''}{FIGURES.get(entry['what'], entry['what'])}{place} is "
            f"{entry['found']}, recorded {entry['expected']}"
        )
    return lines


def setting_rows(report: Report) -> list[tuple[str, str]]:
    """Return what was run, as pairs of name and value."""
    request, environment = report["request"], report["environment"] or {}
    rows: list[tuple[str, Any]] = [
        *(
            (name, _identity(request[name]))
            for name in ("model", "tokenizer")
            if isinstance(request.get(name), Mapping)
        ),
        *(
            (name.replace("_", " "), request[name])
            for name in (
                "kv_connector", "suite", "prompt_formats", "reuse_counts", "max_tokens", "seed",
                "dtype", "max_model_len", "block_size", "chunk_size", "gpu_memory_utilization",
            )
            if request.get(name) is not None
        ),
        ("machine", _machine(report)),
        *sorted((environment.get("distributions") or {}).items()),
        ("generations", _generations(report["generations"])),
        ("kvseal", report["kvseal_version"] or "unknown"),
        ("evidence", report["evidence"]["directory"] or "unknown"),
    ]  # fmt: skip
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in rows
    ]


def _machine(report: Report) -> str:
    device = (report["control"]["engine"] or {}).get("device")
    device = device if isinstance(device, Mapping) else {}
    cpu = (report["host"] or {}).get("cpu_model")
    name = device.get("name") or (cpu.get("value") if isinstance(cpu, Mapping) else None)
    capability = device.get("compute_capability") or device.get("capability")
    return f"{name or 'unknown'}{f', {capability}' if capability else ''}"


def _identity(value: Mapping[str, Any]) -> str:
    name = value.get("requested") or value.get("path") or "unknown"
    return f"{name} ({value.get('revision') or value.get('files_sha256') or 'unknown revision'})"


def _generations(generations: Mapping[str, Any]) -> str:
    planned = generations["planned"].get("total", 0)
    return f"{generations['completed']['total']} of {planned}"
