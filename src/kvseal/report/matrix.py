# SPDX-License-Identifier: Apache-2.0
"""The result of `kvseal matrix` made readable: on the terminal, as Markdown, page and JSON.

All take the document that kvseal.checkers.matrix made. The verdict never stands
without what was not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal.report import matrix_grid as grids
from kvseal.report import matrix_words as words
from kvseal.report.console import printable, table
from kvseal.report.html import render
from kvseal.report.markdown import escape, markdown_table
from kvseal.report.matrix_folder import MatrixRun

SCHEMA = "kvseal.matrix-report.v1"
MAX_GROUPS = 24
MAX_PLACES = 4
MAX_CHARACTERS = 400


def console(result: words.Result, name: str) -> str:
    """Return the summary of one run on the terminal."""
    lines = [
        f"{result['verdict']}  {printable(name)}",
        _short(words.sentence(result)),
        "",
        *_counts(words.count_rows(result)),
    ]
    if words.mixed_rows(result):
        lines += ["", *_counts(words.mixed_rows(result))]
    lines += ["", *map(printable, grids.grid_lines(result))]
    groups = words.groups(result)
    if groups:
        count = len(result["reasons"])
        lines += ["", f"{count} reason{'s' if count > 1 else ''}:"]
        lines += [
            f"  {group.verdict:12}  {group.code}: {_short(group.text(MAX_PLACES))}"
            for group in groups[:MAX_GROUPS]
        ]
        more = sum(max(len(group.places), 1) for group in groups[MAX_GROUPS:])
        if more:
            lines.append(f"  … and {more} more (--json shows all)")
    lines += ["", f"{result['counts']['not_run']} cells not run:"]
    lines += [
        f"  {block.cells:>4}  {_short(block.text(MAX_PLACES))}" for block in words.left_out(result)
    ]
    return "\n".join(lines)


def markdown(runs: Sequence[MatrixRun]) -> str:
    """Return the report of `runs`, for a pull request, an issue or a CI page."""
    return "\n\n".join(_markdown(run) for run in runs) + "\n"


def html(runs: Sequence[MatrixRun]) -> str:
    """Return one page that loads nothing; needs jinja2.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    return render("matrix.html", runs=runs, words=words, grids=grids)


def document(runs: Sequence[MatrixRun]) -> dict[str, Any]:
    """Return the report of `runs` as JSON values."""
    return {
        "schema": SCHEMA,
        "runs": [
            {
                "run": run.name,
                "sentence": words.sentence(run.result),
                "unlisted_files": list(run.unlisted),
                "patches": run.patches,
                "result": run.result,
            }
            for run in runs
        ],
    }


def _markdown(run: MatrixRun) -> str:
    result = run.result
    heads = [f"{backend} {after}" for backend, after in grids.columns(result)]
    rows = [(row.case["case"], *row.letters) for row in grids.grid(result)]
    legend = ", ".join(f"{mark} {text}" for mark, text in grids.LEGEND)
    parts = [
        f"# {result['verdict']}: who gets whose KV",
        escape(words.sentence(result)),
        markdown_table(("", "cells"), words.count_rows(result)),
    ]
    groups = words.groups(result)
    if groups:
        reasons = [(group.verdict, group.code, group.text()) for group in groups]
        parts += ["## Reasons", markdown_table(("verdict", "code", "what"), reasons)]
    parts += ["## Cells", markdown_table(("case", *heads), rows), escape(legend)]
    if words.mixed_rows(result):
        parts += ["## Mixed requests", markdown_table(("", ""), words.mixed_rows(result))]
    parts += [
        "## Not run",
        markdown_table(words.LEFT_OUT_HEADINGS, words.left_out_rows(result)),
        "## Artifacts",
        markdown_table(words.ARTIFACT_HEADINGS, words.artifact_rows(result)),
        "## Run",
        markdown_table(("", ""), [("run", run.name), *words.setting_rows(result)]),
    ]
    codemods = run.patches.get("codemods", [])
    if codemods:
        edits = [
            (entry["name"], f"{entry['distribution']} {entry['version']}", entry["summary"])
            for entry in codemods
        ]
        parts += ["## Patches", markdown_table(("codemod", "package", "what it does"), edits)]
    return "\n\n".join(parts)


def _counts(rows: Sequence[tuple[str, str]]) -> list[str]:
    return table([(printable(name), number) for name, number in rows])


def _short(text: str) -> str:
    """Return `text` for one line of a terminal; the report has all of it."""
    shown = printable(text)
    return shown if len(shown) <= MAX_CHARACTERS else shown[: MAX_CHARACTERS - 1] + "…"
