# SPDX-License-Identifier: Apache-2.0
"""The table: every case of the matrix, group after group.

Called by the driver, the checker and reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvseal.errors import OptionError
from kvseal.workload.matrix.case import Case
from kvseal.workload.matrix.rows import (
    engine,
    identity,
    index,
    scope,
    seed,
    server,
    store,
    tenancy,
)

CASES: tuple[Case, ...] = (
    *seed.ROWS,
    *engine.ROWS,
    *identity.ROWS,
    *tenancy.ROWS,
    *scope.ROWS,
    *index.ROWS,
    *store.ROWS,
    *server.ROWS,
)


def case_named(name: str) -> Case:
    """Return a case of the table.

    Raises:
        OptionError: there is no such case.
    """
    for case in CASES:
        if case.name == name:
            return case
    raise OptionError(
        "no such case of the matrix",
        option="case",
        value=name,
        expected=f"one of {', '.join(case.name for case in CASES)}",
    )


def chosen(names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases of these names, in the table's order; all for no names.

    Raises:
        OptionError: one of them is no case.
    """
    wanted = {case_named(name).name for name in names}
    return tuple(case for case in CASES if not names or case.name in wanted)
