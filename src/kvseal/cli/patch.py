# SPDX-License-Identifier: Apache-2.0
"""`kvseal patch apply|revert|status|diff`: the edits to an engine environment.

Runs under any Python that has LibCST, as a rule the engine environment's own;
it finds the environment's files by looking and never imports an engine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvseal.errors import OptionError, PrerequisiteError

if TYPE_CHECKING:
    from kvseal.codemods.environment import Environment
    from kvseal.codemods.transaction import Outcome

LMCACHE_CHECKOUT = "lmcache"
"""Folder of LMCache's git checkout below the work folder of a run spec."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, summary in (
        ("apply", "make the environment carry exactly the chosen codemods"),
        ("revert", "restore the original bytes"),
        ("status", "compare record and reality; exit status 1 when they differ"),
        ("diff", "print the unified diff of what is applied"),
    ):
        sub = actions.add_parser(action, help=summary, description=summary)
        sub.add_argument("--spec", type=Path, metavar="FILE", help="run-spec.json")
        sub.add_argument("--env", type=Path, metavar="PATH", help="environment, over the spec's")
        if action in {"apply", "revert"}:
            sub.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these codemods")
        if action == "apply":
            sub.add_argument("--without", nargs="+", default=[], metavar="NAME", help="not these")
        if action != "diff":
            sub.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Do what was asked and return the exit status."""
    from kvseal.codemods.environment import Environment

    spec = _load_spec(args.spec)
    path = args.env or (Path(spec.environment.path) if spec is not None else None)
    if path is None:
        raise OptionError(
            "no environment to patch",
            option="--spec or --env",
            expected="a run spec, or the path of an environment",
        )
    environment = Environment.find(path)
    if args.action == "apply":
        return _apply(args, environment, spec)
    if args.action == "revert":
        return _revert(args, environment)
    return _inspect(args, environment)


def _load_spec(path: Path | None) -> Any:
    if path is None:
        return None
    from kvseal.spec.runspec import load_spec

    return load_spec(path)


def _need_libcst() -> None:
    try:
        import libcst  # noqa: F401
    except ImportError:
        raise PrerequisiteError(
            "LibCST is not installed for this Python",
            option="python",
            expected="a Python with libcst",
            remedy="run this with the engine environment's Python",
        ) from None


def _apply(args: argparse.Namespace, environment: Environment, spec: Any) -> int:
    _need_libcst()
    from kvseal.codemods import patchset, registry

    checkout = wanted = None
    if spec is not None:
        if spec.lmcache.source == "git":
            checkout = Path(spec.roots.work) / LMCACHE_CHECKOUT
        if not args.only:  # what is named is wanted, whatever the workflow
            wanted = spec.codemods
    chosen = registry.select(args.only, args.without, wanted)
    names = {codemod.name for codemod in chosen}
    left_out = [
        (
            codemod.name,
            # Names no workflow: two that share an environment must leave the same record.
            "the run spec does not want it"
            if wanted is not None and codemod.name not in wanted
            else "not chosen (--only, --without)",
        )
        for codemod in registry.CODEMODS
        if codemod.name not in names
    ]
    outcome = patchset.apply(
        environment, chosen, left_out=left_out, required=args.only, lmcache_checkout=checkout
    )
    return _print_outcome(args, environment, outcome, "applied")


def _revert(args: argparse.Namespace, environment: Environment) -> int:
    _need_libcst()
    from kvseal.codemods import patchset, registry

    outcome = patchset.revert(environment, registry.CODEMODS, args.only)
    return _print_outcome(args, environment, outcome, "still applied")


def _print_outcome(
    args: argparse.Namespace, environment: Environment, outcome: Outcome, label: str
) -> int:
    if args.json:
        value = {"changed": outcome.changed, "environment": str(environment.root)}
        print(json.dumps(value | outcome.record, indent=2))
        return 0
    print(f"{environment.root}: {'changed' if outcome.changed else 'nothing to change'}")
    _print_codemods(outcome.record, label)
    return 0


def _inspect(args: argparse.Namespace, environment: Environment) -> int:
    from kvseal.codemods.inspection import inspect

    found = inspect(environment)
    if args.action == "diff":
        print(found.diff, end="")
        return 0
    status = 1 if found.problems else 0
    if args.json:
        value = {
            "ok": not found.problems,
            "environment": str(environment.root),
            "problems": found.problems,
            "files": found.files,
            "record": found.record,
        }
        print(json.dumps(value, indent=2))
        return status
    print(f"{environment.root}: {'DIFFERS from its record' if status else 'as recorded'}")
    _print_codemods(found.record, "recorded")
    for path, state in found.files.items():
        print(f"  {state:9} {path}")
    for problem in found.problems:
        print(f"  problem: {problem}")
    return status


def _print_codemods(record: dict[str, Any], label: str) -> None:
    if not record["codemods"]:
        print("  no codemods")
    for entry in record["codemods"]:
        origin = f"{entry['distribution']} {entry['version']}"
        if entry["source"] != "kvseal":
            origin += f", from {entry['source']}"
        print(f"  {label}: {entry['name']} ({origin}): {entry['summary']}")
        if entry["source"] == "kvseal" and entry["source_reason"]:
            print(f"    {entry['source_reason']}")
    for entry in record["left_out"]:
        print(f"  left out: {entry['name']}: {entry['reason']}")
