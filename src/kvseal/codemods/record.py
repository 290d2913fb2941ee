# SPDX-License-Identifier: Apache-2.0
"""The patch record, `patches.json`: which codemods an environment carries, with digests.

Described for readers in docs/formats/patches.md. Built from a plan alone, with
no times in it, so that the same choice gives the same record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvseal import __version__
from kvseal.canonical import sha256_hex
from kvseal.codemods.environment import Environment
from kvseal.codemods.ledger import RECORD_SCHEMA
from kvseal.codemods.plan import Plan


def empty_record(environment: Environment) -> dict[str, Any]:
    """Return the record of an environment that was never patched."""
    return make_record(environment, Plan((), (), {}, {}), (), "")


def make_record(
    environment: Environment, plan: Plan, left_out: Sequence[tuple[str, str]], diff: str
) -> dict[str, Any]:
    """Return the record of `plan`; `left_out` are further names with reasons."""
    return {
        "schema": RECORD_SCHEMA,
        "kvseal_version": __version__,
        "site_packages": str(environment.site_packages.relative_to(environment.root)),
        "codemods": [
            {
                "name": step.codemod.name,
                "summary": step.codemod.summary,
                "distribution": step.distribution.name,
                "version": step.distribution.version,
                "source": step.codemod.source,
                "source_reason": step.codemod.source_reason,
                "source_sha256": _digest(step.codemod.source_text),
                "files": [
                    {
                        "path": file.path,
                        "sha256_before": _digest(file.before),
                        "sha256_after": _digest(file.after),
                    }
                    for file in step.files
                ],
            }
            for step in plan.codemods
        ],
        "left_out": [
            {"name": name, "reason": reason} for name, reason in (*left_out, *plan.left_out)
        ],
        "files": [
            {
                "path": path,
                "sha256_original": _digest(plan.originals[path]),
                "sha256_patched": _digest(data),
            }
            for path, data in sorted(plan.finals.items())
        ],
        "diff_sha256": sha256_hex(diff.encode()),
    }


def _digest(data: bytes | None) -> str | None:
    return None if data is None else sha256_hex(data)
