# SPDX-License-Identifier: Apache-2.0
"""`kvseal compare`: run baseline against SnapKV on this machine.

Runs in the engine environment and leaves a judged run folder. Exit status:
0 PASS, 1 FAIL, 2 INCONCLUSIVE or error, 130 interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--spec", type=Path, required=True, help="run spec (run-spec.json)")
    parser.add_argument("--out", type=Path, required=True, help="run folder, which must not exist")


def run(args: argparse.Namespace) -> int:
    """Run, judge and print the summary; return the verdict's exit status."""
    from kvseal.cli.execution import execute, prepare_process

    prepare_process()
    from kvseal.drivers.run import run_comparison
    from kvseal.report.console import summary
    from kvseal.spec.runspec import RunSpec

    status, result = execute(RunSpec.load(args.spec), args.out, "compare", run_comparison, _judged)
    print(summary(result, args.out.name))
    return status


def _judged(folder: Path) -> tuple[int, dict[str, Any]]:
    from kvseal.checkers.compare import judge
    from kvseal.records.history import read_history
    from kvseal.records.result import assemble
    from kvseal.spec.runspec import RunSpec

    spec = RunSpec.load(folder / "spec.json")
    history = read_history(folder / "history.jsonl")
    judgement = judge(spec, history)
    return judgement.verdict.exit_status, assemble(spec, history, judgement.to_json())
