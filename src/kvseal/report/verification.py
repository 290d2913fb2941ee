# SPDX-License-Identifier: Apache-2.0
"""The report of `kvseal verify` made readable: on the terminal, as Markdown, as one HTML page.

All three take the document that kvseal.checkers.verification made. The verdict
never stands without the contract it rests on and what deviates from it.
"""

from __future__ import annotations

from kvseal.report import verification_words as words
from kvseal.report.console import printable, table
from kvseal.report.html import render
from kvseal.report.markdown import escape, markdown_table
from kvseal.report.verification_words import Report

MAX_REASONS = 8
MAX_CHARACTERS = 300


def console(report: Report, name: str) -> str:
    """Return the summary on the terminal; `name` says where the report is."""
    lines = [
        f"{report['verdict']}  {printable(name)}",
        _short(words.sentence(report)),
        *(_short(line) for line in words.contract_lines(report)),
        "",
        *table([words.TARGET_HEADINGS, *words.target_rows(report)]),
    ]
    acceptance = words.acceptance_lines(report)
    if acceptance:
        lines += ["", acceptance[0], *_cut([f"  {_short(line)}" for line in acceptance[1:]])]
    reasons = words.reasons(report)
    if reasons:
        texts = [
            f"  {entry['verdict']:12}  {entry['code']}: {_short(words.reason_text(entry))}"
            for entry in reasons
        ]
        lines += ["", f"{len(reasons)} reason{'s' if reasons[1:] else ''}:", *_cut(texts)]
    generations = dict(words.setting_rows(report))["generations"]
    directory = report["evidence"]["directory"]
    lines += ["", f"generations: {generations}"]
    if directory is not None:
        lines.append(f"evidence: {printable(directory)}")
    return "\n".join(lines)


def markdown(report: Report, name: str) -> str:
    """Return the report for a pull request, an issue or a CI page."""
    parts = [
        f"# {escape(report['verdict'])}: reused KV against a cache-disabled control",
        escape(words.sentence(report)),
        "\n".join(f"- {escape(line)}" for line in words.contract_lines(report)),
        markdown_table(words.TARGET_HEADINGS, words.target_rows(report)),
    ]
    acceptance = words.acceptance_lines(report)
    if acceptance:
        parts += ["## Acceptance", "\n".join(f"- {escape(line)}" for line in acceptance)]
    if report["reasons"]:
        rows = [
            (entry["verdict"], entry["code"], words.reason_text(entry))
            for entry in words.reasons(report)
        ]
        parts += ["## Reasons", markdown_table(("verdict", "code", "what"), rows)]
    parts += [
        "## Probes",
        "The cold answer first, then each answer that reuses.",
        markdown_table(words.PROBE_HEADINGS, words.probe_rows(report)),
    ]
    warnings = [
        (target["target"], warning["probe"] or "", warning["line"])
        for target in (report["control"], *report["targets"])
        for warning in target["warnings"]
    ]
    if warnings:
        parts += ["## Warnings", markdown_table(("target", "probe", "log line"), warnings)]
    parts += ["## Run", markdown_table(("", ""), [("report", name), *words.setting_rows(report)])]
    return "\n\n".join(parts) + "\n"


def html(report: Report, name: str) -> str:
    """Return the report as one page that loads nothing; needs jinja2.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    return render("verification.html", report=report, name=name, words=words)


def _short(text: str) -> str:
    """Return `text` for one line of a terminal; the report has all of it."""
    shown = printable(text)
    return shown if len(shown) <= MAX_CHARACTERS else shown[: MAX_CHARACTERS - 1] + "…"


def _cut(lines: list[str]) -> list[str]:
    left = len(lines) - MAX_REASONS
    return lines if left <= 0 else [*lines[:MAX_REASONS], f"  … and {left} more, in the report"]
