# SPDX-License-Identifier: Apache-2.0
"""report.md: for a pull request, an issue or a CI page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.report.console import printable
from kvseal.report.run_folder import RunFolder
from kvseal.report.words import (
    HEADINGS,
    arm_table,
    number,
    reason_text,
    setting_rows,
    verdict_sentence,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&])|:(?=//)")
ANSWER_CHARACTERS = 60


def markdown(runs: Sequence[RunFolder]) -> str:
    """Return the report of `runs`."""
    return "\n\n".join(_run(run) for run in runs) + "\n"


def escape(value: object) -> str:
    """Return text that Markdown shows as it is: no markup, link, table cell or HTML."""
    return _SPECIAL.sub(lambda found: "\\" + found.group(), printable(str(value)))


def _run(run: RunFolder) -> str:
    result = run.result
    parts = [
        f"# {result['verdict']}: baseline against SnapKV",
        escape(verdict_sentence(result)),
        markdown_table(HEADINGS, arm_table(result)),
        "95 % intervals in brackets: Wilson for accuracy, bootstrap over prompts for changes.",
    ]
    if result["reasons"]:
        rows = [
            (entry["verdict"], entry["code"], reason_text(entry)) for entry in result["reasons"]
        ]
        parts += ["## Reasons", markdown_table(("verdict", "code", "what"), rows)]
    parts += [
        "## Prompts",
        markdown_table(
            ("#", "dataset", "verdict", "expected", "baseline", "SnapKV", "kept", "hit tokens"),
            [prompt_cells(prompt) for prompt in result["prompts"]],
        ),
        "## Run",
        markdown_table(("", ""), [("run", run.name), *setting_rows(result)]),
    ]
    codemods = run.patches.get("codemods", [])
    if codemods:
        rows = [
            (entry["name"], f"{entry['distribution']} {entry['version']}", entry["summary"])
            for entry in codemods
        ]
        parts += ["## Patches", markdown_table(("codemod", "package", "what it does"), rows)]
    return "\n\n".join(parts)


def prompt_cells(prompt: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one prompt as the cells of a table row."""
    transform, snapkv = prompt["transform"], prompt["snapkv"]
    return (
        str(prompt["index"]),
        prompt["dataset"],
        prompt["verdict"],
        " or ".join(prompt["expected"]),
        _answer(prompt["baseline"]),
        _answer(snapkv),
        "none"
        if transform is None
        else f"{transform['retained_tokens']} of {transform['source_tokens']}",
        "none"
        if snapkv is None
        else f"{number(snapkv['hit_tokens_server'], 9)} / {number(snapkv['hit_tokens_vllm'], 9)}",
    )


def _answer(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return "no answer"
    mark = {True: "right", False: "wrong", None: "not judged"}[answer["correct"]]
    text = " ".join(answer["text"].split())
    if len(text) > ANSWER_CHARACTERS:
        text = text[:ANSWER_CHARACTERS] + "…"
    return f"{mark}: {text}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, every cell escaped."""
    lines = [headings, ["---"] * len(headings)]
    body = [[escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [*lines, *body])
