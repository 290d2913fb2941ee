# SPDX-License-Identifier: Apache-2.0
"""What a run spec must satisfy beyond its types.

`problems` returns all of them at once, each naming the Kconfig symbol, its
value, what was expected and what to do. The machine is not looked at here:
that is `kvseal doctor`. Called by kvseal.spec.translate.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec import bounds, engine_rules, workload_rules
from kvseal.spec.options import symbol, wrong
from kvseal.spec.runspec import RunSpec


def problems(spec: RunSpec) -> list[OptionError]:
    """Return everything that is wrong with `spec`; empty when it is sound."""
    parts = (bounds.problems, engine_rules.problems, workload_rules.problems, _paths)
    return [problem for part in parts for problem in part(spec)]


def refuse(found: list[OptionError]) -> None:
    """Raise one OptionError that holds all of `found`; do nothing when it is empty."""
    if len(found) == 1:
        raise found[0]
    if found:
        listed = "\n\n".join(f"{number}. {problem}" for number, problem in enumerate(found, 1))
        raise OptionError(f"{len(found)} problems in this configuration\n\n{listed}")


def _paths(spec: RunSpec) -> Iterator[OptionError]:
    for name, path in (
        ("WORK_ROOT", spec.roots.work),
        ("RESULTS_ROOT", spec.roots.results),
        ("CACHE_ROOT", spec.roots.cache),
        ("DATASET_FILE", spec.workload.dataset_file),
        ("MODEL", spec.model.name if spec.model.source == "path" else ""),
    ):
        if '"' in path or "\\" in path:
            yield wrong(
                name,
                "a path with a quote or backslash can't be handed on safely",
                path,
                "a path without them",
                "choose another path",
            )
    if spec.roots.work == spec.roots.results:
        yield wrong(
            "RESULTS_ROOT",
            "work and results share a folder, and clean would delete results",
            spec.roots.results,
            f"another folder than {symbol('WORK_ROOT')}",
            "choose another path",
        )
