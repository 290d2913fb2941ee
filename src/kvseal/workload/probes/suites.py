# SPDX-License-Identifier: Apache-2.0
"""Which prompts a suite has: their cases, formats and lengths, as tables.

A length is a function of chunk C and block B, so the same boundaries are met
whatever the geometry. The acceptance suite has no table: its prompts stand in
the fixture. Text and token IDs are no business of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvseal.errors import OptionError
from kvseal.workload.probes.probe import FORMATS, Geometry

SUITES = ("standard", "smoke", "acceptance")
PAIR_CHUNKS = 2
"""Whole chunks that the two prompts of a shared-prefix pair have in common."""


@dataclass(frozen=True)
class Case:
    """One row of a suite.

    `both` is its format where a run has raw and chat prompts. `pair` is 1 or 2
    for the prompts of the shared-prefix pair, else 0.
    """

    slug: str
    tokens: Callable[[int, int], int]
    both: str
    unicode: bool = False
    pair: int = 0


# The two formats take turns over each boundary's lengths: six prompts each.
STANDARD = (
    Case("chunk-1", lambda c, b: c - 1, "raw"),
    Case("chunk", lambda c, b: c, "chat"),
    Case("chunk+1", lambda c, b: c + 1, "raw"),
    Case("2-chunks-1", lambda c, b: 2 * c - 1, "chat"),
    Case("2-chunks", lambda c, b: 2 * c, "raw"),
    Case("2-chunks+1", lambda c, b: 2 * c + 1, "chat", unicode=True),
    Case("block-1", lambda c, b: c + b - 1, "raw"),
    Case("block", lambda c, b: c + b, "chat"),
    Case("block+1", lambda c, b: c + b + 1, "raw"),
    Case("several-chunks", lambda c, b: 5 * c + 7 * c // 8, "raw", unicode=True),
    Case("shared-prefix-first", lambda c, b: PAIR_CHUNKS * c + c // 2, "chat", pair=1),
    Case("shared-prefix-second", lambda c, b: PAIR_CHUNKS * c + 3 * c // 4, "chat", pair=2),
)

SMOKE = (
    Case("2-chunks-1", lambda c, b: 2 * c - 1, "chat"),
    Case("2-chunks", lambda c, b: 2 * c, "raw"),
    Case("several-chunks", lambda c, b: 3 * c + 7 * c // 8, "chat", unicode=True),
)

TABLES = {"standard": STANDARD, "smoke": SMOKE}


@dataclass(frozen=True)
class Plan:
    """One prompt before it has a text; `tokens` counts the chat frame or first token too."""

    case: str
    prompt_format: str
    tokens: int
    reuse_counts: tuple[int, ...]
    unicode: bool = False
    pair: int = 0

    @property
    def prompt(self) -> str:
        """Return the prompt's id, unique in its suite because no two lengths are the same."""
        return f"{self.prompt_format}-{self.tokens}"


def table_lengths(table: Sequence[Case], chunk: int, block: int) -> list[int]:
    """Return the length of each row, all different.

    Where the geometry makes two rows equal, as one block a chunk does, the later
    one grows by whole chunks until it is alone: that keeps it at its boundary.
    """
    found: list[int] = []
    for case in table:
        tokens = case.tokens(chunk, block)
        while tokens in found:
            tokens += chunk
        found.append(tokens)
    return found


def plan_table(
    suite: str, formats: Sequence[str], reuse_counts: Sequence[int], geometry: Geometry
) -> list[Plan]:
    """Return the prompts of `suite`, a name of TABLES, each with every reuse count."""
    table = TABLES[suite]
    return [
        Plan(
            case.slug,
            case.both if len(formats) > 1 else formats[0],
            tokens,
            tuple(reuse_counts),
            case.unicode,
            case.pair,
        )
        for case, tokens in zip(
            table, table_lengths(table, geometry.chunk_tokens, geometry.block_tokens), strict=True
        )
    ]


def plan_fixture(
    rows: Sequence[Mapping[str, Any]], formats: Sequence[str], reuse_counts: Sequence[int]
) -> list[Plan]:
    """Return the prompts of an acceptance fixture, whose rows are taken as they stand.

    A row is `{tokens, reuse_count, format}`. Rows of one length and format are
    one prompt with several reuse counts.

    Raises:
        OptionError: for a row that is none, one that stands there twice, or one
            whose format or reuse count was not asked for.
    """
    plans: dict[tuple[str, int], Plan] = {}
    for row in rows:
        tokens, count, prompt_format = _row(row)
        _asked("--prompt-format", prompt_format, formats)
        _asked("--reuse-counts", count, reuse_counts)
        key = (prompt_format, tokens)
        before = plans[key].reuse_counts if key in plans else ()
        if count in before:
            raise _bad_fixture("a probe of the fixture stands there twice", dict(row))
        plans[key] = Plan("fixture", prompt_format, tokens, (*before, count))
    return list(plans.values())


def _row(row: Any) -> tuple[int, int, str]:
    if isinstance(row, Mapping) and set(row) == {"tokens", "reuse_count", "format"}:
        tokens, count, prompt_format = row["tokens"], row["reuse_count"], row["format"]
        numbers = all(type(value) is int and value > 0 for value in (tokens, count))
        if numbers and prompt_format in FORMATS:
            return tokens, count, prompt_format
    raise _bad_fixture("no probe of a fixture is like this", row)


def _asked(option: str, found: str | int, asked: Sequence[str] | Sequence[int]) -> None:
    if found not in asked:
        shown = ",".join(map(str, asked))
        raise OptionError(
            f"the fixture has a probe that {option} leaves out",
            option=option,
            value=shown,
            expected=f"{found} among them, as the fixture says",
            remedy=f"give the {option} that the fixture was recorded with",
        )


def _bad_fixture(message: str, row: object) -> OptionError:
    return OptionError(
        message,
        option="--fixture",
        value=row,
        expected="{tokens: 1 or more, reuse_count: 1 or more, format: raw or chat}, each once",
        remedy="correct the fixture",
    )
