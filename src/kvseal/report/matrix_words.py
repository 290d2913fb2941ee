# SPDX-License-Identifier: Apache-2.0
"""The result of a matrix in words: the sentence, the counts, what failed, what was not run.

Every text that terminal, Markdown and page have in common is made here, from
the document that kvseal.checkers.matrix made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.matrix import REASONS, STOCK, Outcome

Result = Mapping[str, Any]

OUTCOMES = {
    "passed": "came to what it must",
    "unsafe_hits": "unsafe hit: KV was loaded where none may be",
    "wrong_answers": "wrong answer",
    "not_refused": "had to be refused and was not",
    "lost_hits": "lost hit: KV that must be there was not, or was refused",
    "not_seen": "something else was seen than must be",
    "inconclusive": "inconclusive",
    "not_run": "not run, each with its reason below",
}
"""Count of the result → what a cell counted there came to."""

BACKENDS = {
    "process": "LMCache in one process",
    "mp": "LMCache server, shared memory",
    "native": "the same, vLLM's own prefix cache on",
    "fs": "LMCache server, file system behind it",
    "fs_native": "LMCache server, file system behind it, by its C++ code",
    "resp": "LMCache server, Redis behind it",
    "valkey": "LMCache server, Valkey or Redis behind it, by Valkey's client",
    "s3": "LMCache server, S3 behind it (moto)",
    "s3_rclone": "LMCache server, S3 behind it (rclone)",
    "dax": "LMCache server, a mapped file behind it",
    "mock": "LMCache server, its own mock behind it",
    "plugin": "LMCache server, a Python plugin behind it",
    "native_plugin": "LMCache server, a native plugin behind it",
    "fault_inject": "LMCache server, its fault injection around files behind it",
}
BY = {"table": "the table", "spec": "the run spec", "driver": "the driver"}
VERSIONS = {
    "vllm_version": "vLLM",
    "lmcache_version": "LMCache",
    "lmcache_revision": "LMCache revision",
    "torch_version": "torch",
    "model_revision": "model revision",
    "kvseal_version": "kvseal",
}


def sentence(result: Result) -> str:
    """Return what the verdict means, in one plain sentence."""
    counts, mixed = result["counts"], result["mixed"]
    if result["verdict"] == "PASS":
        together = (
            f", and none of {mixed['requests']} requests that two engines sent to one server "
            "together was served another's KV"
            if mixed["requests"]
            else ""
        )
        return (
            f"Every request got the KV that it names and no other: all {counts['cells']} cells "
            f"came to what they must{together}."
        )
    first = min(result["reasons"], key=_rank)
    if result["verdict"] == "FAIL":
        stock = result["identity"] == STOCK
        opening = "Without transform identity KV is not" if stock else "KV is not"
        return f"{opening} kept apart: {_found(result)}. The first: {reason_text(first)}."
    return (
        "This run does not show whether KV is kept apart, because something that must be known "
        f"is not: {reason_text(first)}."
    )


def _rank(reason: Mapping[str, Any]) -> int:
    """Return how bad a reason is, 0 for the worst."""
    return list(Outcome).index(REASONS[reason["code"]][0])


def _found(result: Result) -> str:
    """Return what failed, counted."""
    counts, mixed = result["counts"], result["mixed"]
    names = {
        "unsafe_hits": "unsafe hit", "wrong_answers": "wrong answer", "lost_hits": "lost hit",
        "not_refused": "missing refusal", "not_seen": "wrong observation",
    }  # fmt: skip
    cells = [_many(counts[key], name) for key, name in names.items() if counts[key]]
    pairs = [_many(mixed[key], name) for key, name in names.items() if mixed.get(key)]
    parts = [
        *([f"{', '.join(cells)} in {counts['cells']} cells"] if cells else []),
        *([f"{', '.join(pairs)} in {mixed['requests']} mixed requests"] if pairs else []),
    ]
    return " and ".join(parts) or "a record is not what it has to be"


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def count_rows(result: Result) -> list[tuple[str, str]]:
    """Return how many cells came to what, all of them first."""
    counts = result["counts"]
    return [
        ("cells", str(counts["cells"])),
        *((text, str(counts[name])) for name, text in OUTCOMES.items() if _is_shown(name, counts)),
        *(
            [("answers that a recomputation would have given too", str(result["weak_answers"]))]
            if result["weak_answers"]
            else []
        ),
    ]


def _is_shown(name: str, counts: Mapping[str, int]) -> bool:
    return name in ("passed", "unsafe_hits", "not_run") or bool(counts[name])


MIXED = {
    "requests": "requests of two engines on one server together",
    "hits_required": "had to hit",
    "misses_required": "had to miss",
    "either_allowed": "ordinary, answered by the control's tokens in either case",
    "hits_seen": "loaded something",
    "unsafe_hits": "unsafe hits",
    "wrong_answers": "wrong answers",
    "lost_hits": "lost hits",
    "inconclusive": "inconclusive",
}


def mixed_rows(result: Result) -> list[tuple[str, str]]:
    """Return the figures of the mixed requests; none where none were to be sent."""
    mixed = result["mixed"]
    if not mixed["planned"] and not mixed["requests"]:
        return []
    return [(text, str(mixed[name])) for name, text in MIXED.items()]


def place_text(cell: Mapping[str, str] | None) -> str:
    """Return which cell a reason is about, empty for none."""
    if cell is None:
        return ""
    restart = "" if cell["after"] == "none" else f" after restart of {cell['after']}"
    return f"{cell['case']} on {cell['backend']}{restart}"


def reason_text(reason: Mapping[str, Any]) -> str:
    """Return a reason with what it is about."""
    about = place_text(reason["cell"])
    return f"{about}: {reason['message']}" if about else str(reason["message"])


@dataclass(frozen=True)
class Group:
    """Reasons that say the same of several cells."""

    verdict: str
    code: str
    message: str
    places: tuple[str, ...]

    def text(self, limit: int | None = None) -> str:
        """Return the message, with the cells it is about; `limit` cells at most."""
        if not self.places:
            return self.message
        shown = self.places if limit is None else self.places[:limit]
        more = len(self.places) - len(shown)
        return f"{self.message}: {'; '.join(shown)}" + (f"; and {more} more" if more else "")


def groups(result: Result) -> list[Group]:
    """Return the reasons, the worst first, those that say the same together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in sorted(result["reasons"], key=_rank):
        key = (entry["verdict"], entry["code"], entry["message"])
        found.setdefault(key, []).append(place_text(entry["cell"]))
    return [
        Group(*key, places=tuple(place for place in places if place))
        for key, places in found.items()
    ]


@dataclass(frozen=True)
class LeftOut:
    """Cells that were not run for one reason."""

    cells: int
    by: str
    reason: str
    cases: tuple[str, ...]

    def text(self, limit: int | None = None) -> str:
        """Return the reason with the cases it holds for; `limit` cases at most."""
        shown = self.cases if limit is None else self.cases[:limit]
        more = len(self.cases) - len(shown)
        return (
            f"{self.reason} (said by {BY[self.by]}; "
            f"{', '.join(shown)}{f' and {more} more' if more else ''})"
        )


def left_out(result: Result) -> list[LeftOut]:
    """Return what was not run, by reason."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for block in result["not_run"]:
        found.setdefault((block["by"], block["reason"]), []).append(block)
    return [
        LeftOut(sum(b["cells"] for b in blocks), by, reason, _unique(b["case"] for b in blocks))
        for (by, reason), blocks in found.items()
    ]


def left_out_rows(result: Result) -> list[tuple[str, str, str, str, str]]:
    """Return every block that was not run: how many, which cases, where, who says so, why."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for block in result["not_run"]:
        where = f"{', '.join(block['backends'])} after {', '.join(block['afters'])}"
        found.setdefault((where, block["by"], block["reason"]), []).append(block)
    return [
        (
            str(sum(block["cells"] for block in blocks)),
            ", ".join(_unique(block["case"] for block in blocks)),
            where,
            BY[by],
            reason,
        )
        for (where, by, reason), blocks in found.items()
    ]


LEFT_OUT_HEADINGS = ("cells", "cases", "where", "said by", "why")


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def artifact_rows(result: Result) -> list[tuple[str, ...]]:
    """Return the artifacts as cells of a table."""
    return [
        (
            entry["name"],
            entry["title"],
            "not made"
            if entry["tokens"] is None
            else f"{entry['tokens']} of {entry['source_tokens']}",
            entry["variant"] or ("sealed in each cell" if entry["request_local"] else "none"),
        )
        for entry in result["artifacts"]
    ]


ARTIFACT_HEADINGS = ("artifact", "what it is", "tokens", "variant")


def setting_rows(result: Result) -> list[tuple[str, str]]:
    """Return what was run, as pairs of name and value."""
    versions = result["versions"]
    return [
        ("identity", "none (stock)" if result["identity"] == STOCK else "exact variant"),
        ("backends", ", ".join(f"{name} ({BACKENDS[name]})" for name in result["backends"])),
        ("restarts before asking", ", ".join(result["afters"])),
        *((title, versions[name] or "unknown") for name, title in VERSIONS.items()),
        ("run spec", result["spec_sha256"]),
    ]
