# SPDX-License-Identifier: Apache-2.0
"""The sections of a run spec that one workflow alone has, from that workflow's options.

`value` maps an option's short name to its value, whole and each of its type
(kvseal.spec.variables). A relative path starts at `checkout`. Called by
kvseal.spec.translate.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvseal.errors import OptionError
from kvseal.spec import sections
from kvseal.spec.options import (
    BACKENDS,
    KV_REUSE,
    LMCACHE_SNAPKV_MATRIX,
    NO_IDENTITY,
    RESTARTS,
    TASKS,
    VARIANT,
)
from kvseal.spec.verify_request import DEFAULT_REUSE_COUNTS, parse_reuse_counts


def workload(value: Mapping[str, Any], checkout: Path) -> sections.Workload:
    """Return the prompts of the comparison."""
    named = value["DATASET_FILE"] or value["DATASET_HUB"]
    return sections.Workload(
        datasets=() if named else tuple(task for task in TASKS if value[task.upper()]),
        dataset_file=absolute(value["DATASET_FILE"], checkout),
        dataset_hub=value["DATASET_HUB"],
        dataset_revision=value["DATASET_REVISION"],
        prompts=value["NUM_PROMPTS"],
        prompt_tokens=value["PROMPT_TOKENS"],
        new_tokens=value["MAX_TOKENS"],
        seed=value["SEED"],
    )


def snapkv(value: Mapping[str, Any]) -> sections.Snapkv:
    """Return the compaction of the comparison."""
    return sections.Snapkv(
        drop_percent=value["DROP_PERCENT"],
        window_tokens=value["WINDOW_SIZE"],
        kernel_tokens=value["KERNEL_SIZE"],
        reference=value["REFERENCE"],
    )


def verify(value: Mapping[str, Any], checkout: Path, found: list[OptionError]) -> sections.Verify:
    """Return the verification; what its text can't be read as goes into `found`."""
    try:
        counts = parse_reuse_counts(value["REUSE_COUNTS"])
    except OptionError as error:
        counts = DEFAULT_REUSE_COUNTS  # so that the other rules can be asked as well
        found.append(
            KV_REUSE.wrong(
                "REUSE_COUNTS",
                error.message,
                value["REUSE_COUNTS"],
                "distinct positive integers with commas between",
                "set it to 1,3",
            )
        )
    return sections.Verify(
        contract=value["CONTRACT"],
        connector=value["CONNECTOR"],
        compare_native=value["COMPARE_NATIVE"],
        suite=value["SUITE"],
        prompt_format=value["PROMPT_FORMAT"],
        reuse_counts=counts,
        max_tokens=value["MAX_TOKENS"],
        seed=value["SEED"],
        tenant=value["TENANT"],
        fixture=_fixture(value["FIXTURE"], checkout),
        accept_deviations=_names(value["ACCEPT_DEVIATIONS"]),
    )


def matrix(
    value: Mapping[str, Any], known: Sequence[str], found: list[OptionError]
) -> sections.Matrix:
    """Return which cases of the matrix are run, where, and how much KV they are about.

    known: the names of all cases; others, and what is named twice, go into `found`.
    """
    cases = _names(value["CASES"])
    found += _wrong_cases(cases, known)
    return sections.Matrix(
        backends=tuple(name for name in BACKENDS if value[f"BACKEND_{name.upper()}"]),
        restarts=tuple(name for name in RESTARTS if value[f"RESTART_{name.upper()}"]),
        cases=cases,
        identity=NO_IDENTITY if value["STOCK"] else VARIANT,
        mixed_requests=value["MIXED_REQUESTS"],
        prompt_tokens=value["PROMPT_TOKENS"],
        new_tokens=value["MAX_TOKENS"],
        seed=value["SEED"],
        drop_percent=value["DROP_PERCENT"],
        window_tokens=value["WINDOW_SIZE"],
        kernel_tokens=value["KERNEL_SIZE"],
    )


def _wrong_cases(cases: Sequence[str], known: Sequence[str]) -> Iterator[OptionError]:
    for name in dict.fromkeys(cases):
        near = difflib.get_close_matches(name, known, n=1)
        if name not in known:
            yield LMCACHE_SNAPKV_MATRIX.wrong(
                "CASES",
                "no such case of the matrix",
                name,
                f"perhaps {near[0]}" if near else "names of cases with commas between, or nothing",
                "`kvseal matrix --list` prints the names of all cases",
            )
        elif cases.count(name) > 1:
            yield LMCACHE_SNAPKV_MATRIX.wrong(
                "CASES", "a case is named twice", name, "each name once", "take one of them out"
            )


def _fixture(text: str, checkout: Path) -> str:
    """Return the name of a fixture as it is, and a file's absolute path."""
    named = "/" not in text and not text.endswith(".json")
    return text if named else absolute(text, checkout)


def _names(text: str) -> tuple[str, ...]:
    """Return what stands between commas, blanks around it left out; nothing for no text."""
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def absolute(path: str, checkout: Path) -> str:
    """Return `path` with ~ and relative parts resolved against the checkout; empty stays empty."""
    return str((checkout / Path(path).expanduser()).resolve()) if path else ""
