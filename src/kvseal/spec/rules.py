# SPDX-License-Identifier: Apache-2.0
"""What a run spec must satisfy beyond its types.

`problems` returns all of them at once, each naming the Kconfig symbol, its
value, what was expected and what to do. The machine is not looked at here:
that is `kvseal doctor`. Called by kvseal.spec.translate.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec import (
    bounds,
    engine_rules,
    matrix_rules,
    model_rules,
    verify_rules,
    workload_rules,
)
from kvseal.spec.options import WORKFLOWS
from kvseal.spec.runspec import AnySpec, RunSpec, VerifySpec


def problems(spec: AnySpec) -> list[OptionError]:
    """Return everything that is wrong with `spec`; empty when it is sound."""
    parts = (bounds.problems, engine_rules.problems, model_rules.problems)
    found = [problem for part in parts for problem in part(spec)]
    files: list[tuple[str, str]] = []
    if isinstance(spec, RunSpec):
        found += workload_rules.problems(spec)
        files.append(("DATASET_FILE", spec.workload.dataset_file))
    elif isinstance(spec, VerifySpec):
        found += verify_rules.problems(spec)
        files.append(("FIXTURE", spec.verify.fixture))
    else:
        found += matrix_rules.problems(spec)
    return [*found, *_paths(spec, files)]


def refuse(found: list[OptionError]) -> None:
    """Raise one OptionError that holds all of `found`; do nothing when it is empty."""
    if len(found) == 1:
        raise found[0]
    if found:
        listed = "\n\n".join(f"{number}. {problem}" for number, problem in enumerate(found, 1))
        raise OptionError(f"{len(found)} problems in this configuration\n\n{listed}")


def _paths(spec: AnySpec, files: list[tuple[str, str]]) -> Iterator[OptionError]:
    of = WORKFLOWS[spec.workflow]
    for name, path in (
        ("WORK_ROOT", spec.roots.work),
        ("RESULTS_ROOT", spec.roots.results),
        ("CACHE_ROOT", spec.roots.cache),
        *files,
        ("MODEL", spec.model.name if spec.model.source == "path" else ""),
    ):
        if '"' in path or "\\" in path:
            yield of.wrong(
                name,
                "a path with a quote or backslash can't be handed on safely",
                path,
                "a path without them",
                "choose another path",
            )
    if spec.roots.work == spec.roots.results:
        yield of.wrong(
            "RESULTS_ROOT",
            "work and results share a folder, and clean would delete results",
            spec.roots.results,
            f"another folder than {of.symbol('WORK_ROOT')}",
            "choose another path",
        )
