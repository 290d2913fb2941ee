# SPDX-License-Identifier: Apache-2.0
"""Acceptance fixtures: what a paired run once gave, to hold another run to.

Format `kvseal.verification-fixture.v1` (docs/formats/verification.md). A null is
something that was not recorded, and is not asserted. An unknown field is
refused: an assertion that nobody reads would look like one that holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from kvseal.canonical import loads_strict
from kvseal.errors import EvidenceError, OptionError
from kvseal.spec.contracts import TARGETS
from kvseal.workload.probes import FORMATS

SCHEMA = "kvseal.verification-fixture.v1"
OPTION = "--fixture"
EQUAL = "equal"
"""In place of an index: the answer has to be the control's."""
VERDICTS = ("pass", "fail", "inconclusive", "control_match")
KNOWN = ("l4-lmcache-0.5.4", "h200-lmcache-0.5.4")
"""Fixtures that come with kvseal, by name."""


@dataclass(frozen=True)
class Expected:
    """What one probe of one target has to give; a list has the cold answer first, then each reuse.

    None, as the whole or as an entry, is not asserted.
    """

    verdict: str | None
    cached_tokens: tuple[int | None, ...] | None
    first_difference_control: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class FixtureProbe:
    """A probe by its length, reuse count and format (None: either), and what targets made of it."""

    tokens: int
    reuse_count: int
    format: str | None
    expected: Mapping[str, Expected]


@dataclass(frozen=True)
class Fixture:
    """A recorded paired run: a verdict for each target, what each probe gave, the exit status."""

    name: str
    recorded: Mapping[str, Any]
    model: str | None
    targets: Mapping[str, str]
    probes: tuple[FixtureProbe, ...]
    exit_status: int


def known_fixture(name: str) -> dict[str, Any]:
    """Return the document of a fixture that comes with kvseal, one of KNOWN.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in KNOWN:
        raise _wrong("no such fixture", name, " or ".join(KNOWN))
    file = resources.files(__package__).joinpath(f"fixtures/{name}.json")
    document: dict[str, Any] = loads_strict(file.read_text(encoding="utf-8"))
    return document


def load_fixture(path: Path) -> tuple[Fixture, dict[str, Any]]:
    """Return the fixture at `path`, and its document.

    `path` may also be the name of a fixture that comes with kvseal; a file of that
    name wins.

    Raises:
        OptionError: naming --fixture, when it can't be read or is none.
    """
    if str(path) in KNOWN and not path.is_file():
        document = known_fixture(str(path))
        return parse_fixture(document), document
    try:
        document = loads_strict(path.read_bytes())
    except OSError as error:
        raise _wrong(
            f"the fixture can't be read: {error.strerror}",
            str(path),
            f"a file, or {' or '.join(KNOWN)}, which come with kvseal",
        ) from None
    except EvidenceError as error:
        raise _wrong(f"the fixture is {error.message}", str(path), "a JSON object") from None
    return parse_fixture(document), document


def parse_fixture(document: Any) -> Fixture:
    """Return the fixture that `document` is.

    Raises:
        OptionError: naming --fixture, and the field that is wrong.
    """
    top = _object(document, "the fixture", "schema name recorded model targets probes exit_status")
    _check(top["schema"] == SCHEMA, "schema", top["schema"], SCHEMA)
    _check(_is_text(top["name"]), "name", top["name"], "text")
    _recorded(top["recorded"])
    _check(top["model"] is None or _is_text(top["model"]), "model", top["model"], "text or null")
    targets = top["targets"]
    _check(
        isinstance(targets, Mapping) and targets != {} and set(targets) <= set(TARGETS),
        "targets", targets, f"a verdict for each of {', '.join(TARGETS)} that was recorded",
    )  # fmt: skip
    for name, verdict in targets.items():
        _check(verdict in VERDICTS[:3], f"targets.{name}", verdict, " or ".join(VERDICTS[:3]))
    probes = top["probes"]
    _check(isinstance(probes, list) and probes != [], "probes", probes, "a list of probes")
    _check(
        type(top["exit_status"]) is int and top["exit_status"] in (0, 1, 2),
        "exit_status", top["exit_status"], "0, 1 or 2",
    )  # fmt: skip
    return Fixture(
        name=top["name"],
        recorded=dict(top["recorded"]),
        model=top["model"],
        targets=dict(targets),
        probes=tuple(
            _probe(probe, f"probes[{place}]", set(targets)) for place, probe in enumerate(probes)
        ),
        exit_status=top["exit_status"],
    )


def _recorded(value: Any) -> None:
    recorded = _object(value, "recorded", "machine date versions")
    _check(_is_text(recorded["machine"]), "recorded.machine", recorded["machine"], "text")
    date = recorded["date"]
    _check(date is None or _is_text(date), "recorded.date", date, "text or null")
    versions = recorded["versions"]
    _check(
        isinstance(versions, Mapping) and all(map(_is_text, versions.values())),
        "recorded.versions", versions, "an object of texts",
    )  # fmt: skip


def _probe(value: Any, where: str, targets: set[str]) -> FixtureProbe:
    probe = _object(value, where, "tokens reuse_count format expected")
    for name in ("tokens", "reuse_count"):
        _check(
            type(probe[name]) is int and probe[name] > 0,
            f"{where}.{name}",
            probe[name],
            "1 or more",
        )
    _check(
        probe["format"] in (None, *FORMATS),
        f"{where}.format", probe["format"], f"{' or '.join(FORMATS)}, or null",
    )  # fmt: skip
    expected = _object(probe["expected"], f"{where}.expected", " ".join(sorted(targets)))
    answers = probe["reuse_count"] + 1
    return FixtureProbe(
        tokens=probe["tokens"],
        reuse_count=probe["reuse_count"],
        format=probe["format"],
        expected={
            target: _expected(entry, f"{where}.expected.{target}", answers)
            for target, entry in expected.items()
        },
    )


def _expected(value: Any, where: str, answers: int) -> Expected:
    entry = _object(value, where, "verdict cached_tokens first_difference_control")
    _check(
        entry["verdict"] in (None, *VERDICTS),
        f"{where}.verdict", entry["verdict"], f"{' or '.join(VERDICTS)}, or null",
    )  # fmt: skip
    for name, words in (("cached_tokens", ()), ("first_difference_control", (EQUAL,))):
        figures = entry[name]
        right = figures is None or (
            isinstance(figures, list)
            and len(figures) == answers
            and all(
                figure is None or figure in words or (type(figure) is int and figure >= 0)
                for figure in figures
            )
        )
        _check(
            right, f"{where}.{name}", figures,
            f"null, or {answers} entries, the cold answer's first: "
            + ", ".join(["a count", *(f'"{word}"' for word in words), "or null"]),
        )  # fmt: skip
    return Expected(
        verdict=entry["verdict"],
        cached_tokens=_tuple(entry["cached_tokens"]),
        first_difference_control=_tuple(entry["first_difference_control"]),
    )


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


def _object(value: Any, where: str, names: str) -> Mapping[str, Any]:
    fields = names.split()
    _check(
        isinstance(value, Mapping) and set(value) == set(fields),
        where,
        sorted(value) if isinstance(value, Mapping) else value,
        f"an object with exactly {', '.join(fields)}",
    )
    found: Mapping[str, Any] = value
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _check(good: bool, where: str, value: Any, expected: str) -> None:
    if not good:
        raise _wrong(f"the fixture is wrong at {where}", value, expected)


def _wrong(message: str, value: Any, expected: str) -> OptionError:
    return OptionError(
        message,
        option=OPTION,
        value=value,
        expected=expected,
        remedy="the format is described in docs/formats/verification.md",
    )
