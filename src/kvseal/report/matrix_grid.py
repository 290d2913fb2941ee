# SPDX-License-Identifier: Apache-2.0
"""The grid of a matrix: a row a case, a column a backend and restart, a letter a cell.

And what stands behind a letter: the cell's stores and steps in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Result = Mapping[str, Any]

PASSED = {"hit": "h", "miss": "m", "refused": "r", "seen": "o"}
FAILED = {
    "unsafe_hit": "U", "wrong_answer": "W", "not_refused": "N", "lost_hit": "L",
    "not_seen": "X", "inconclusive": "?",
}  # fmt: skip
NOT_RUN = "."
LEAST_ALIKE = 4
"""So many rows of one family, all with the same letters, are one line on the terminal."""
LEGEND = (
    ("h", "hit, as it must"),
    ("m", "miss, as it must"),
    ("r", "refused, as it must"),
    ("o", "observed, as it must"),
    ("U", "unsafe hit"),
    ("W", "wrong answer"),
    ("N", "not refused"),
    ("L", "lost hit"),
    ("X", "other than must be observed"),
    ("?", "inconclusive"),
    (NOT_RUN, "not run"),
)


@dataclass(frozen=True)
class GridRow:
    """A case and its letters, in the order of `columns`; `cells` has None where nothing ran."""

    case: Mapping[str, Any]
    letters: tuple[str, ...]
    cells: tuple[Mapping[str, Any] | None, ...]


def columns(result: Result) -> list[tuple[str, str]]:
    """Return the backends and restarts that were asked for, as pairs."""
    return [(backend, after) for backend in result["backends"] for after in result["afters"]]


def grid(result: Result) -> list[GridRow]:
    """Return every case with its letters."""
    rows = []
    for row in result["rows"]:
        there = {(cell["backend"], cell["after"]): cell for cell in row["cells"]}
        cells = tuple(there.get(column) for column in columns(result))
        rows.append(GridRow(row, tuple(map(letter, cells)), cells))
    return rows


def letter(cell: Mapping[str, Any] | None) -> str:
    """Return the letter of a cell."""
    if cell is None:
        return NOT_RUN
    if cell["outcome"] == "passed":
        return PASSED[cell["required"]]
    return FAILED[cell["outcome"]]


def grid_lines(result: Result) -> list[str]:
    """Return the grid as lines of text, and below it what its letters mean."""
    width = max(len(row["case"]) for row in result["rows"])
    afters = len(result["afters"])
    cell_width = max([2 * afters - 1, *map(len, result["backends"])])

    def line(name: str, parts: Sequence[str]) -> str:
        return "  ".join([name.ljust(width), *(part.ljust(cell_width) for part in parts)]).rstrip()

    def by_backend(letters: Sequence[str]) -> list[str]:
        return [
            " ".join(letters[start : start + afters]) for start in range(0, len(letters), afters)
        ]

    heads = [after[0] for _, after in columns(result)]
    rows = grid(result)
    used = {mark for row in rows for mark in row.letters}
    lines = [line("", result["backends"]), line("", by_backend(heads))]
    lines += [line(name, by_backend(letters)) for name, letters in _alike(rows)]
    legend = "; ".join(f"{mark} {text}" for mark, text in LEGEND if mark in used)
    restarts = "; ".join(f"{after[0]} {after}" for after in result["afters"])
    return [*lines, "", legend, f"restarted before asking: {restarts}"]


def _alike(rows: Sequence[GridRow]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name and letters of each line; neighbours of one family with the same letters once."""
    for (family, letters), several in groupby(rows, lambda row: (_family(row), row.letters)):
        names = [row.case["case"] for row in several]
        if len(names) < LEAST_ALIKE:
            yield from ((name, letters) for name in names)
        else:
            yield f"{family}-… ({len(names)} cases)", letters


def _family(row: GridRow) -> str:
    return str(row.case["case"]).partition("-")[0]


def cell_lines(cell: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was stored and asked in a cell, a line each, with all numbers."""
    yield f"tenant {cell['cache_salt'] or 'unknown'}"
    for store in cell["stores"]:
        name = f"{store['artifact']} as {store['variant'] or 'ordinary'}"
        if store["refusal"] is None:
            yield f"stored {store['tokens']} tokens of {name}"
        else:
            yield f"store of {name} refused: {store['refusal']}"
    for step in cell["steps"]:
        yield f"{step['step']}: {_step(step)}"


def _step(step: Mapping[str, Any]) -> str:
    found = f" [{', '.join(step['reasons'])}]" if step["reasons"] else ""
    if step["what"] != "ask":
        wanted = step["expected"] or step["required"]
        about = f"{step['what']} of {step['artifact']}"
        return f"{about}: {step['value']}, must be {wanted}{found}"
    parts = [
        f"ask for {step['artifact']} as {step['variant'] or 'ordinary'} ({step['identity']})",
        f"must be {step['required']}",
    ]
    if step["refusal"] is not None:
        parts.append(f"refused: {step['refusal']}")
    parts.append(
        f"server {_count(step['hit_tokens_server'])}, vLLM {_count(step['hit_tokens_vllm'])}, "
        f"a full hit has {step['artifact_tokens']} tokens"
    )
    if step["payload_sha256"] is not None:
        parts.append(f"payload {step['payload_sha256']}")
    if step["output_token_ids"] is not None:
        parts.append(f"answer {_tokens(step['output_token_ids'])}")
    if step["expected_token_ids"] is not None:
        parts.append(f"true answer {_tokens(step['expected_token_ids'])}")
    if step["first_difference"] is not None:
        parts.append(f"differs from token {step['first_difference']} on")
    if step["top2_margin"] is not None and step["first_difference"] is not None:
        parts.append(f"the witness's two best are {step['top2_margin']:.3g} apart at the closest")
    if step["weak"]:
        parts.append("a recomputation would answer this too")
    return "; ".join(parts) + found


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _tokens(token_ids: Sequence[int]) -> str:
    return " ".join(map(str, token_ids))
