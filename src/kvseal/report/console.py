# SPDX-License-Identifier: Apache-2.0
"""The summary on the terminal: the verdict, then both arms and the change between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.report.words import HEADINGS, arm_table, reason_text, verdict_sentence

MAX_REASONS = 8


def summary(result: Mapping[str, Any], name: str) -> str:
    """Return the summary of one run as lines of text."""
    lines = [f"{result['verdict']}  {printable(name)}", printable(verdict_sentence(result)), ""]
    lines += table([HEADINGS, *arm_table(result)])
    reasons = result["reasons"]
    if reasons:
        lines += ["", f"{len(reasons)} reason{'s' if reasons[1:] else ''}:"]
        lines += [
            f"  {entry['verdict']:12}  {entry['code']}: {printable(reason_text(entry))}"
            for entry in reasons[:MAX_REASONS]
        ]
        if reasons[MAX_REASONS:]:
            lines.append(f"  … and {len(reasons) - MAX_REASONS} more (--json shows all)")
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return `rows` in columns: the first `left` to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """Return `text` with control characters shown, so that no record can steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
