# SPDX-License-Identifier: Apache-2.0
"""`kvseal unsafe-hit`: show whose KV an ordinary prompt gets from the cache.

Runs in the engine environment, on the first prompt of a run spec. Exit status:
1 when the prompt was served KV compacted from another prompt, 0 when it was
not, 2 when that could not be seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--spec", type=Path, required=True, help="run spec (run-spec.json)")
    parser.add_argument("--out", type=Path, required=True, help="run folder, which must not exist")


def run(args: argparse.Namespace) -> int:
    """Run the demonstration, print both answers; return the verdict's exit status."""
    from kvseal.checkers.unsafe_hit import judge_unsafe_hit
    from kvseal.cli.execution import execute, prepare_process

    prepare_process()
    from kvseal.drivers.unsafe_hit import run_unsafe_hit
    from kvseal.records.history import read_history
    from kvseal.report.unsafe_hit import console
    from kvseal.spec.runspec import RunSpec

    def judged(folder: Path) -> tuple[int, dict[str, object]]:
        found = judge_unsafe_hit(read_history(folder / "history.jsonl"))
        return found.verdict.exit_status, found.to_json()

    status, result = execute(
        RunSpec.load(args.spec), args.out, "unsafe-hit", run_unsafe_hit, judged
    )
    print(console(result, args.out.name))
    return status
