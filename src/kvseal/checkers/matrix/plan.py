# SPDX-License-Identifier: Apache-2.0
"""Which cells a run has to have, and which of the whole matrix it has not, and why.

The whole matrix is every case of the table in every backend after every
restart. What is not run is never passed over: the table says that a case does
not exist somewhere, the run spec leaves a case, a backend or a restart out, or
the driver says that a cell does not apply. The last counts only where the rule
here allows it, or a driver could make any run green by leaving cells out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kvseal.checkers.matrix.place import Place
from kvseal.records.history import Event, History
from kvseal.workload.matrix import AFTERS, BACKENDS, CASES, Case
from kvseal.workload.matrix.case import BOTH, NONE, PROCESS, SERVER

STOCK = "none"
"""`identity` of a run that stores and asks without any variant, as LMCache does unedited."""


class Chosen(Protocol):
    """The section `matrix` of a run spec, as far as it is judged by."""

    @property
    def backends(self) -> tuple[str, ...]: ...
    @property
    def restarts(self) -> tuple[str, ...]: ...
    @property
    def cases(self) -> tuple[str, ...]: ...
    @property
    def identity(self) -> str: ...
    @property
    def mixed_requests(self) -> int: ...


class Chunked(Protocol):
    """The section `lmcache` of a run spec, as far as it is judged by."""

    @property
    def chunk_size_tokens(self) -> int: ...


class Spec(Protocol):
    """A run spec of the workflow lmcache-snapkv-matrix, as far as it is judged by."""

    @property
    def matrix(self) -> Chosen: ...
    @property
    def lmcache(self) -> Chunked: ...
    def sha256(self) -> str: ...


@dataclass(frozen=True)
class NotRun:
    """A block of cells that were not run: each of `backends` after each of `afters`.

    by: who says so, `table`, `spec` or `driver`.
    """

    case: str
    backends: tuple[str, ...]
    afters: tuple[str, ...]
    by: str
    reason: str

    @property
    def cells(self) -> int:
        """How many they are."""
        return len(self.backends) * len(self.afters)

    def to_json(self) -> dict[str, Any]:
        """Return the block as it stands in the result."""
        return {
            "case": self.case,
            "backends": list(self.backends),
            "afters": list(self.afters),
            "cells": self.cells,
            "by": self.by,
            "reason": self.reason,
        }


def backends_of(spec: Spec) -> tuple[str, ...]:
    """Return the backends that the run spec asks for, in the table's order."""
    return tuple(name for name in BACKENDS if name in spec.matrix.backends)


def afters_of(spec: Spec) -> tuple[str, ...]:
    """Return what is restarted before asking, `none` first."""
    return tuple(name for name in AFTERS if name == NONE or name in spec.matrix.restarts)


def is_chosen(spec: Spec, case: Case) -> bool:
    """True where the run spec asks for the case: by its name, or by naming none."""
    return not spec.matrix.cases or case.name in spec.matrix.cases


def planned(spec: Spec) -> tuple[Place, ...]:
    """Return every cell that the run spec and the table ask for together."""
    return tuple(
        Place(case.name, backend, after)
        for case in CASES
        if is_chosen(spec, case)
        for backend in backends_of(spec)
        for after in afters_of(spec)
        if case.runs_in(backend, after)
    )


def not_planned(spec: Spec) -> Iterator[NotRun]:
    """Yield every other cell of the whole matrix, in blocks, with the reason."""
    for case in CASES:
        other = _without(BACKENDS, case.backends)
        yield from _block(case, other, AFTERS, "table", case.elsewhere)
        other = _without(AFTERS, case.afters)
        yield from _block(case, case.backends, other, "table", case.elsewhere)
        if not is_chosen(spec, case):
            why = "the run spec leaves this case out"
            yield from _block(case, case.backends, case.afters, "spec", why)
            continue
        chosen = backends_of(spec)
        left = _without(case.backends, chosen)
        yield from _block(case, left, case.afters, "spec", "the run spec leaves this backend out")
        here = tuple(name for name in case.backends if name in chosen)
        left = _without(case.afters, afters_of(spec))
        yield from _block(case, here, left, "spec", "the run spec leaves this restart out")


def _without(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in set(others))


def _block(
    case: Case, backends: tuple[str, ...], afters: tuple[str, ...], by: str, why: str
) -> Iterator[NotRun]:
    if backends and afters:
        yield NotRun(case.name, backends, afters, by, why)


def may_not_apply(case: Case, place: Place, identity: str) -> bool:
    """True where the driver may leave a planned cell out and the run can still pass.

    In one process there is no server to restart. Without identity there is
    nothing to publish, list or forge, and no variant to misspell or to lie about.
    """
    if place.backend == PROCESS and place.after in (SERVER, BOTH):
        return True
    return identity == STOCK and case.needs_identity


def left_out(
    spec: Spec, events: Mapping[Place, Event], cases: Mapping[str, Case]
) -> dict[Place, NotRun]:
    """Return the planned cells that the driver left out and was allowed to."""
    return {
        place: NotRun(
            place.case, (place.backend,), (place.after,), "driver", str(events[place]["reason"])
        )
        for place in planned(spec)
        if place in events and may_not_apply(cases[place.case], place, spec.matrix.identity)
    }


def without_backend(spec: Spec, history: History) -> dict[Place, NotRun]:
    """Return the planned cells of backends that could not be used; such a run never passes."""
    unusable = {event["backend"]: event["message"] for event in history.named("backend_unusable")}
    return {
        place: NotRun(
            place.case, (place.backend,), (place.after,), "driver", unusable[place.backend]
        )
        for place in planned(spec)
        if place.backend in unusable
    }
