# SPDX-License-Identifier: Apache-2.0
"""What of the recorded request the judgement rests on, read without trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvseal.checkers.verification.reasons import Reason, reason
from kvseal.records.history import Event
from kvseal.spec.contracts import TARGETS


@dataclass(frozen=True)
class Request:
    """`targets` are known ones, each once; a value that is missing or wrong is empty or None."""

    targets: tuple[str, ...] = ()
    suite: str = ""
    dtype: str = ""
    max_tokens: int | None = None
    accepted: tuple[str, ...] = ()
    deviations: tuple[Mapping[str, Any], ...] = ()
    fixture: Mapping[str, Any] | None = None
    directory: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    contract: Mapping[str, Any] = field(default_factory=dict)


def read_request(started: Event | None, found: list[Reason]) -> Request:
    """Return the request of `started`; what is wrong with it is added to `found`."""
    if started is None:
        return Request()
    document, contract = started["request"], started["contract"]

    def take(where: Mapping[str, Any], name: str, good: bool, otherwise: Any) -> Any:
        if good:
            return where[name]
        found.append(reason("run.request_incomplete", problem=f"{name} is missing or wrong"))
        return otherwise

    targets = document.get("targets")
    named = _texts(targets)
    listed = isinstance(targets, (list, tuple)) and len(set(named)) == len(targets)
    deviations = contract.get("deviations")
    fixture = document.get("fixture")
    tokens = document.get("max_tokens")
    directory = document.get("evidence_directory")
    return Request(
        targets=tuple(
            take(
                document,
                "targets",
                listed and set(named) <= set(TARGETS),
                sorted(set(named) & set(TARGETS)),
            )
        ),
        suite=take(document, "suite", isinstance(document.get("suite"), str), ""),
        dtype=take(document, "dtype", isinstance(document.get("dtype"), str), ""),
        max_tokens=take(document, "max_tokens", type(tokens) is int and tokens > 0, None),
        accepted=_texts(document.get("accepted_deviations")),
        deviations=tuple(take(contract, "deviations", _is_objects(deviations), ())),
        fixture=take(document, "fixture", fixture is None or isinstance(fixture, Mapping), None)
        if "fixture" in document
        else None,
        directory=directory if isinstance(directory, str) else None,
        document=document,
        contract=contract,
    )


def _texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; of anything else, none."""
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in value if isinstance(entry, str))


def _is_objects(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(entry, Mapping) for entry in value)
