# SPDX-License-Identifier: Apache-2.0
"""The report of `kvseal verify` made readable: on the terminal, as Markdown, as one HTML page.

All three take the document that kvseal.checkers.verification made. The verdict
never stands without the contract it rests on and what deviates from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvseal.report import verification_ground as ground
from kvseal.report import verification_reasons as why
from kvseal.report import verification_words as words
from kvseal.report.console import printable, table
from kvseal.report.html import render
from kvseal.report.markdown import escape, markdown_table
from kvseal.report.verification_reasons import Report

MAX_REASONS = 8
MAX_CHARACTERS = 300

Shown = tuple[Report, str, Sequence[str]]
"""A report, where it is or what it is called, and notes on how it was stored."""


def console(report: Report, name: str, notes: Sequence[str] = ()) -> str:
    """Return the summary on the terminal; `name` says where the report is."""
    lines = [
        f"{report['verdict']}  {printable(name)}",
        _short(words.sentence(report)),
        words.BOUNDED,
        *map(_short, ground.contract_lines(report)),
        *(_short(f"note: {note}") for note in notes),
        "",
        *table([words.TARGET_HEADINGS, *words.target_rows(report)]),
    ]
    acceptance = words.acceptance_lines(report)
    if acceptance:
        lines += ["", acceptance[0], *_cut([(f"  {_short(line)}", 1) for line in acceptance[1:]])]
    groups, count = why.grouped(report), len(report["reasons"])
    if groups:
        texts = [
            (f"  {group.verdict:12}  {group.code}: {_short(str(group))}", group.count)
            for group in groups
        ]
        lines += ["", f"{count} reason{'s' if count > 1 else ''}:", *_cut(texts)]
    generations = dict(words.setting_rows(report))["generations"]
    directory = report["evidence"]["directory"]
    lines += ["", f"generations: {generations}"]
    if directory is not None:
        lines.append(f"evidence: {printable(directory)}")
    return "\n".join(lines)


def markdown(report: Report, name: str, notes: Sequence[str] = ()) -> str:
    """Return the report for a pull request, an issue or a CI page."""
    parts = [
        f"# {escape(report['verdict'])}: reused KV against a cache-disabled control",
        escape(words.sentence(report)),
        _list([words.BOUNDED, *ground.contract_lines(report), *notes]),
        markdown_table(words.TARGET_HEADINGS, words.target_rows(report)),
    ]
    acceptance = words.acceptance_lines(report)
    if acceptance:
        parts += ["## Acceptance", _list(acceptance)]
    differences, groups = why.difference_rows(report), why.grouped(report, differences=False)
    if differences:
        parts += [
            "## Differences from the control",
            markdown_table(why.DIFFERENCE_HEADINGS, differences),
        ]
    if groups:
        rows = [(group.verdict, group.code, str(group)) for group in groups]
        parts += [
            "## Other reasons" if differences else "## Reasons",
            markdown_table(("verdict", "code", "what"), rows),
        ]
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
    changed = ground.changed_file_rows(report)
    if changed:
        parts += ["## Files not as published", markdown_table(ground.CHANGED_HEADINGS, changed)]
    return "\n\n".join(parts) + "\n"


def html(report: Report, name: str, notes: Sequence[str] = ()) -> str:
    """Return the report as one page that loads nothing; needs jinja2.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    return page([(report, name, notes)])


def page(runs: Sequence[Shown]) -> str:
    """Return one page of several reports, as `html` of one.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    return render("verification.html", runs=runs, words=words, why=why, ground=ground)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def _short(text: str) -> str:
    """Return `text` for one line of a terminal; the report has all of it."""
    shown = printable(text)
    return shown if len(shown) <= MAX_CHARACTERS else shown[: MAX_CHARACTERS - 1] + "…"


def _cut(lines: Sequence[tuple[str, int]]) -> list[str]:
    """Return the first lines, and how many of what they count were left out."""
    shown = [line for line, _ in lines[:MAX_REASONS]]
    left = sum(count for _, count in lines[MAX_REASONS:])
    return [*shown, f"  … and {left} more, in the report"] if left else shown
