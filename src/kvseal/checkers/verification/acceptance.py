# SPDX-License-Identifier: Apache-2.0
"""Hold a run to an acceptance fixture: did it give again what was recorded?

This moves no verdict: a run in which LMCache fails as it failed before matches
its fixture, and still ends with exit status 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvseal.checkers.verification.fixture import EQUAL, Expected, Fixture, FixtureProbe

ANSWER_FIGURES = ("cached_tokens", "first_difference_control")


def compare(
    fixture: Fixture,
    targets: Sequence[Mapping[str, Any]],
    probes: Sequence[Mapping[str, Any]],
    exit_status: int,
    *,
    complete: bool,
) -> dict[str, Any]:
    """Return `acceptance` of the report: the fixture, whether it is matched, every difference.

    `targets`, `probes` and `complete` are those of the report; a run that did not
    reach its end matches nothing.
    """
    found = [*_targets(fixture, targets), *_probes(fixture, targets, probes)]
    if exit_status != fixture.exit_status:
        found.append(_difference("exit_status", fixture.exit_status, exit_status))
    if not complete:
        found.append(_difference("complete", True, False))
    return {"fixture": fixture.name, "matched": not found, "differences": found}


def _targets(fixture: Fixture, targets: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    verdicts = {target["target"]: target["verdict"] for target in targets}
    for name in sorted(set(verdicts) | set(fixture.targets)):
        expected, seen = fixture.targets.get(name), verdicts.get(name)
        if expected != seen:
            yield _difference("verdict", expected, seen, target=name)


def _probes(
    fixture: Fixture, targets: Sequence[Mapping[str, Any]], probes: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    left = [dict(probe) for probe in probes]
    # Probes that leave the format open take what those that name one have left.
    for wanted in sorted(fixture.probes, key=lambda probe: probe.format is None):
        probe = next((entry for entry in left if _is(wanted, entry)), None)
        if probe is None:
            yield _difference("probe", _name(wanted), None)
            continue
        left.remove(probe)
        for target in targets:
            if target["target"] in wanted.expected:
                results = {entry["probe"]: entry for entry in target["probes"]}
                yield from _result(
                    wanted.expected[target["target"]],
                    results.get(probe["id"]),
                    target["target"],
                    probe["id"],
                )
    for probe in left:
        yield _difference("probe", None, probe["id"], probe=probe["id"])


def _result(
    expected: Expected, result: Mapping[str, Any] | None, target: str, probe: str
) -> Iterator[dict[str, Any]]:
    verdict = result["verdict"] if result else None
    if expected.verdict is not None and expected.verdict != verdict:
        yield _difference("verdict", expected.verdict, verdict, target=target, probe=probe)
    for figure in ANSWER_FIGURES:
        wanted = getattr(expected, figure)
        for place, value in enumerate(wanted or ()):
            seen = _figure(figure, result["answers"][place]) if result else None
            if value is not None and value != seen:
                yield _difference(figure, value, seen, target=target, probe=probe, answer=place)


def _figure(figure: str, answer: Mapping[str, Any]) -> Any:
    if figure == "first_difference_control" and answer["equal_control"]:
        return EQUAL
    return answer[figure]


def _is(wanted: FixtureProbe, probe: Mapping[str, Any]) -> bool:
    return (
        probe["tokens"] == wanted.tokens
        and probe["reuse_count"] == wanted.reuse_count
        and wanted.format in (None, probe["prompt_format"])
    )


def _name(wanted: FixtureProbe) -> str:
    shape = "" if wanted.format is None else f" {wanted.format}"
    return f"{wanted.tokens} tokens{shape}, reused {wanted.reuse_count} times"


def _difference(
    what: str,
    expected: Any,
    found: Any,
    *,
    target: str | None = None,
    probe: str | None = None,
    answer: int | None = None,
) -> dict[str, Any]:
    """Return one difference. `answer` counts from 0, the cold answer."""
    return {
        "target": target,
        "probe": probe,
        "answer": answer,
        "what": what,
        "expected": expected,
        "found": found,
    }
