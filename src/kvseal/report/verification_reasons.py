# SPDX-License-Identifier: Apache-2.0
"""Why a verification did not pass, with what is said more than once said once.

The report holds a reason for each answer; whoever reads a page wants one for
each thing that happened. Nothing is left out but repetition: first differing
token, both tokens and margin stay. Takes the report document and decides nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvseal.report.words import number

Report = Mapping[str, Any]

DIFFERENCE_HEADINGS = (
    "verdict", "target", "probe", "answers", "at token", "control", "answer", "margin",
    "moved before", "explained by",
)  # fmt: skip
NAMED_PROBES = 3
_ANSWER = re.compile(r"reusing answer (\d+)")
_MOVED = re.compile(r"moved by ([0-9.e-]+)")
_UNASKED = re.compile(r"0 of (\d+) answers are there")


@dataclass(frozen=True)
class Group:
    """`count` reasons that say the same of these probes (none: of the target, or the run)."""

    verdict: str
    code: str
    target: str | None
    probes: tuple[str, ...]
    text: str
    count: int = 1

    def __str__(self) -> str:
        """Return what is said, and of whom."""
        probes = list(self.probes)
        if len(probes) > NAMED_PROBES + 1:
            probes[NAMED_PROBES:] = [f"{len(probes) - NAMED_PROBES} more probes"]
        about = ", ".join(filter(None, (self.target, listed(probes))))
        return f"{about}: {self.text}" if about else self.text


def grouped(report: Report, *, differences: bool = True) -> list[Group]:
    """Return the reasons, failures first, with those that say the same in one.

    Without `differences`, only those that `difference_rows` does not hold.
    """
    groups = [
        Group(
            entry["verdict"],
            entry["code"],
            entry["target"],
            (entry["probe"],) if entry["probe"] else (),
            entry["text"],
        )
        for entry in sorted(report["reasons"], key=lambda entry: entry["verdict"] != "FAIL")
        if differences or not _in_rows(entry["code"])
    ]
    groups = _joined(groups, lambda group: (*_kind(group), _masked(group.text)), _answers)
    groups = _unasked(groups)
    return _joined(
        groups, lambda group: (*_kind(group)[:3], group.text, bool(group.probes)), _probes
    )


def listed(names: Sequence[str]) -> str:
    """Return names as in a sentence: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def difference_rows(report: Report) -> list[tuple[str, ...]]:
    """Return each difference from the control as a row of DIFFERENCE_HEADINGS, failures first.

    Answers of one probe that differ alike share a row, which has the furthest that one moved.
    """
    rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for target in report["targets"]:
        for probe in target["probes"]:
            for answer in probe["answers"]:
                if answer["difference"] is not None:
                    key = (target["target"], probe["probe"], *_cells(answer["difference"]))
                    rows[key].append(answer)
    found = [
        (
            "FAIL" if explanation == "nothing" else "INCONCLUSIVE",
            target,
            probe,
            ", ".join(map(_name, answers)),
            *cells,
            _furthest(answers),
            explanation,
        )
        for (target, probe, *cells, explanation), answers in rows.items()
    ]
    return sorted(found, key=lambda row: row[0] != "FAIL")


def _cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    tokens = found["control_token"], found["token"]
    return (
        str(found["index"]),
        *("end" if token is None else str(token) for token in tokens),
        number(found["margin"]),
        (found["explanation"] or "nothing").replace("_", " "),
    )


def _name(answer: Mapping[str, Any]) -> str:
    return "cold" if answer["kind"] == "cold" else str(answer["repetition"])


def _furthest(answers: Sequence[Mapping[str, Any]]) -> str:
    if answers[0]["difference"]["index"] == 0:
        return ""  # there is no token before the first
    moved = [answer["largest_logprob_difference"] for answer in answers]
    return number(max((value for value in moved if value is not None), default=None))


def _in_rows(code: str) -> bool:
    return code.startswith("difference.") and code != "difference.hidden"


def _masked(text: str) -> str:
    return _MOVED.sub("", _ANSWER.sub("", text))


def _kind(group: Group) -> tuple[Any, ...]:
    return group.verdict, group.code, group.target, group.probes


def _joined(
    groups: Iterable[Group],
    key: Callable[[Group], Any],
    join: Callable[[list[Group]], Group],
) -> list[Group]:
    """Return `groups` with those of one key made into one, at the place of the first."""
    sorted_out: dict[Any, list[Group]] = defaultdict(list)
    for group in groups:
        sorted_out[key(group)].append(group)
    return [join(several) if several[1:] else several[0] for several in sorted_out.values()]


def _answers(groups: list[Group]) -> Group:
    """Join what is said of several reusing answers of one probe.

    How far each one's log-probabilities moved becomes a range.
    """
    numbers = [found[1] for group in groups if (found := _ANSWER.search(group.text))]
    moved = {found[1] for group in groups if (found := _MOVED.search(group.text))}
    text = groups[0].text
    if numbers:
        text = _ANSWER.sub(f"each of reusing answers {listed(numbers)}", text)
    if len(moved) > 1:
        ends = min(moved, key=float), max(moved, key=float)
        text = _MOVED.sub(f"moved by {' to '.join(ends)}", text)
    return replace(groups[0], text=text, count=len(groups))


def _unasked(groups: list[Group]) -> list[Group]:
    """Join the probes that a target was never asked, after what else is said of it."""
    left = list(groups)
    for target in dict.fromkeys(group.target for group in groups):
        asked = [group for group in left if group.target == target]
        unasked = [
            (group, int(found[1]))
            for group in asked
            if group.code == "probe.incomplete" and (found := _UNASKED.fullmatch(group.text))
        ]
        if not unasked[1:]:
            continue
        joined = replace(
            unasked[0][0],
            probes=(),
            text=f"{len(unasked)} probes were not asked: none of their "
            f"{sum(answers for _, answers in unasked)} answers is there",
            count=len(unasked),
        )
        left.insert(left.index(asked[-1]) + 1, joined)
        for group, _ in unasked:
            left.remove(group)
    return left


def _probes(groups: list[Group]) -> Group:
    """Join what is said in the same words of several probes of one target."""
    return replace(
        groups[0],
        probes=tuple(probe for group in groups for probe in group.probes),
        count=sum(group.count for group in groups),
    )
