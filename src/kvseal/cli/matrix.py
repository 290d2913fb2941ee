# SPDX-License-Identifier: Apache-2.0
"""`kvseal matrix`: does every request get the KV that it names, and nobody any other?

Runs in the engine environment and leaves a judged run folder. `--list` prints
the table of cases instead and needs no engine. Exit status: 0 PASS, 1 FAIL,
2 INCONCLUSIVE or error, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from kvseal.errors import OptionError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--spec", type=Path, metavar="FILE", help="run spec (run-spec.json)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="run folder, which must not exist")
    parser.add_argument(
        "--list", action="store_true", help="print the table of cases, and run nothing"
    )
    parser.add_argument("--json", action="store_true", help="with --list: as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run, judge and print the summary; return the verdict's exit status. Or print the table."""
    _check(args)
    if args.list:
        from kvseal.report import matrix_cases as cases

        shown = cases.document()
        print(json.dumps(shown, indent=2) if args.json else cases.console())
        return 0
    from kvseal.cli.execution import execute, prepare_process

    prepare_process()
    # In one process LMCache warns at each store that it has no controller, as meant.
    os.environ["LMCACHE_LOG_LEVEL"] = "ERROR"
    from kvseal.drivers.matrix.run import run_matrix
    from kvseal.records.matrix import DRIVER, TABLE
    from kvseal.report.matrix import console
    from kvseal.spec.runspec import MatrixSpec

    spec = MatrixSpec.load(args.spec)
    status, result = execute(spec, args.out, DRIVER, run_matrix, _judged, table=TABLE)
    print(console(result, args.out.name))
    return status


def _check(args: argparse.Namespace) -> None:
    """Refuse options that don't go together."""
    for option, value in (("--spec", args.spec), ("--out", args.out)):
        if args.list and value is not None:
            raise OptionError(
                "the table is the same for every run",
                option=option,
                value=str(value),
                expected="no such option with --list",
                remedy="leave it out",
            )
        if not args.list and value is None:
            raise OptionError(
                "a required option is missing",
                option=option,
                expected="--spec FILE --out DIR",
                remedy="name it, or print the table with --list",
            )
    if args.json and not args.list:
        raise OptionError(
            "only the table is printed as JSON",
            option="--json",
            expected="--list --json",
            remedy="leave it out; `kvseal check RUN --json` prints a run",
        )


def _judged(folder: Path) -> tuple[int, dict[str, Any]]:
    from kvseal.checkers.matrix import judge, verdict_of
    from kvseal.records.history import read_history
    from kvseal.records.matrix import TABLE
    from kvseal.spec.runspec import MatrixSpec

    spec = MatrixSpec.load(folder / "spec.json")
    result = judge(spec, read_history(folder / "history.jsonl", TABLE))
    return verdict_of(result).exit_status, result
