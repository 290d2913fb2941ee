# SPDX-License-Identifier: Apache-2.0
"""Run the cases of one backend: store them all, restart, ask them all; write down what came.

Every cell has a cache salt of its own, so that no cell can see what another
stored or asked. Judges nothing: what a step must come to is not looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvseal.compaction.artifact_checks import check_before_store
from kvseal.drivers.matrix.artifacts import Made
from kvseal.drivers.matrix.lab import EngineGoneError
from kvseal.drivers.matrix.lies import LONG_SALT, falsified
from kvseal.drivers.matrix.prompts import Prompts
from kvseal.drivers.matrix.surface import Answer, Stored, Surface
from kvseal.errors import KvsealError
from kvseal.identity.variant import MARK, variant_of
from kvseal.process import Progress
from kvseal.records import matrix_builders as builders
from kvseal.records.history import HistoryWriter
from kvseal.workload.matrix import CASES, Act, Ask, Case
from kvseal.workload.matrix.case import (
    ARTIFACT,
    BOTH,
    EXACT,
    INDEX,
    NONE,
    ORDINARY,
    PROCESS,
    SERVER,
    TEXT,
)
from kvseal.workload.matrix.fields import changed

SALT_CHARACTERS = 128
"""The longest salt that LMCache takes."""


@dataclass
class Cell:
    """A case in one backend after one restart, with what it stored."""

    case: Case
    after: str
    salt: str
    sealed: dict[str, Stored] = field(default_factory=dict)


@dataclass(frozen=True)
class Rounds:
    """What all cells of a run share. `sealed` False is the stock mode: nothing has an identity.

    made: every artifact that `cases` name.
    """

    made: Mapping[str, Made]
    prompts: Prompts
    history: HistoryWriter
    sealed: bool
    cases: Sequence[Case] = CASES


def run_cells(surface: Surface, after: str, rounds: Rounds) -> None:
    """Run every chosen case that exists in this backend after restarting `after`."""
    cells = []
    for case in rounds.cases:
        if not case.runs_in(surface.backend, after):
            continue
        reason = _not_applicable(surface, after, case, rounds)
        if reason:
            rounds.history.append(
                builders.not_applicable(
                    case=case.name, backend=surface.backend, after=after, reason=reason
                )
            )
        else:
            cells.append(_cell(case, surface.backend, after))
    if not cells:
        return
    with Progress(f"{surface.backend}, after restarting {after}") as progress:
        batches = [cells] if surface.together else [[cell] for cell in cells]
        for number, batch in enumerate(batches, start=1):
            progress.update(f"batch {number} of {len(batches)}")
            _run_batch(surface, after, batch, rounds, progress)


def _not_applicable(surface: Surface, after: str, case: Case, rounds: Rounds) -> str:
    if surface.backend == PROCESS and after in (SERVER, BOTH):
        return "in one process there is no server to restart"
    if case.needs_identity and not rounds.sealed:
        return "nothing has an identity here"
    return ""


def _cell(case: Case, backend: str, after: str) -> Cell:
    salt = f"{backend}-{after}-{case.name}".replace("_", "-").replace(".", "-")
    return Cell(case, after, salt.ljust(SALT_CHARACTERS, "x") if case.lie == LONG_SALT else salt)


def _run_batch(
    surface: Surface, after: str, cells: Sequence[Cell], rounds: Rounds, progress: Progress
) -> None:
    for cell in cells:
        rounds.history.append(
            builders.cell(
                case=cell.case.name,
                backend=surface.backend,
                after=after,
                cache_salt=cell.salt,
            )
        )
        _store(surface, cell, rounds)
        _steps(surface, cell, rounds, before_restart=True)
    emptied = surface.settle()
    if emptied is not None:
        rounds.history.append(
            builders.emptied(
                backend=surface.backend, objects_before=emptied[0], objects_after=emptied[1]
            )
        )
    if after != NONE:
        surface.restart(after)
        rounds.history.append(builders.restarted(backend=surface.backend, what=after))
    for number, cell in enumerate(cells, start=1):
        if surface.together:
            progress.update(f"asking {number} of {len(cells)}")
        _steps(surface, cell, rounds, before_restart=False)
    surface.empty()


def _sealed(cell: Cell, name: str, rounds: Rounds) -> Stored:
    """The artifact `name` with its identity in this cell; the same whenever asked."""
    if name not in cell.sealed:
        made = rounds.made[name]
        seal = made.seal if rounds.sealed else None
        cell.sealed[name] = Stored(made, None if seal is None else seal())
    return cell.sealed[name]


def _store(surface: Surface, cell: Cell, rounds: Rounds) -> None:
    case = cell.case
    for number, name in enumerate(case.store):
        stored = _sealed(cell, name, rounds)
        refusal, tokens = None, 0
        try:
            given = falsified(stored, case.lie) if number == 0 else stored
            if given.artifact is not None:
                check_before_store(
                    given.artifact,
                    given.made.source_token_ids,
                    source_variant=given.made.source_variant,
                )
            tokens = surface.store(given.made, given.artifact, cell.salt)
        except KvsealError as error:
            refusal = error.message
        rounds.history.append(
            builders.stored(
                case=case.name,
                backend=surface.backend,
                after=cell.after,
                artifact=name,
                variant=stored.variant,
                cache_salt=cell.salt,
                tokens=tokens,
                refusal=refusal,
            )
        )


def _steps(surface: Surface, cell: Cell, rounds: Rounds, *, before_restart: bool) -> None:
    for number, step in enumerate(cell.case.steps):
        if step.before_restart != before_restart:
            continue
        if isinstance(step, Act):
            _act(surface, cell, rounds, number, step)
        else:
            _ask(surface, cell, rounds, number, step)


def _act(surface: Surface, cell: Cell, rounds: Rounds, number: int, step: Act) -> None:
    stored = _sealed(cell, step.artifact, rounds)
    try:
        value = surface.act(step, stored, cell.salt)
    except EngineGoneError:
        raise
    except KvsealError as error:
        value = f"refused: {error.message}"
    rounds.history.append(
        builders.observed(
            case=cell.case.name,
            backend=surface.backend,
            after=cell.after,
            step=number,
            what=step.kind,
            value=value,
        )
    )


def _ask(surface: Surface, cell: Cell, rounds: Rounds, number: int, step: Ask) -> None:
    stored = _sealed(cell, step.prompt, rounds)
    prompt = rounds.prompts.of(step)
    variant, salt = "", _salt(cell, step, stored)
    try:
        variant = _variant(surface, cell, rounds, step, stored)
        answer = surface.ask(prompt, variant=variant, cache_salt=salt)
    except EngineGoneError:
        raise
    except KvsealError as error:
        answer = Answer(refusal=error.message)
    rounds.history.append(
        builders.asked(
            case=cell.case.name,
            backend=surface.backend,
            after=cell.after,
            step=number,
            artifact=step.prompt,
            prompt=prompt,
            artifact_tokens=rounds.prompts.hit_tokens(step),
            variant=variant,
            cache_salt=salt,
            **dataclasses.asdict(answer),
        )
    )


def _variant(surface: Surface, cell: Cell, rounds: Rounds, step: Ask, stored: Stored) -> str:
    """The variant that a request names."""
    if not rounds.sealed or step.identity == ORDINARY:
        return ""
    if step.identity == EXACT:
        return stored.variant
    if step.identity == INDEX:
        return surface.found_in_index(stored, cell.salt)
    how, _, what = step.identity.partition(":")
    if f"{how}:" == TEXT:
        return what
    if f"{how}:" == ARTIFACT:
        return _sealed(cell, what, rounds).variant
    return variant_of(changed(stored.identity.manifest, what))


def _salt(cell: Cell, step: Ask, stored: Stored) -> str:
    named: dict[str, Callable[[], str]] = {
        "cell": lambda: cell.salt,
        "other": lambda: f"{cell.salt}-other",
        "variant": lambda: stored.variant,
        "mark": lambda: f"{MARK}{stored.variant}",
    }
    return named[step.salt]()
