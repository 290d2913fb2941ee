# SPDX-License-Identifier: Apache-2.0
"""`kvseal check RUN`: judge a run folder again, from its files alone, on any machine.

Digests first, then spec and history; the stored result must be what they give.
Exit status 0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE or files that can't be
trusted. Writes nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Judge the run and return the exit status of its verdict."""
    from kvseal.checkers.unsafe_hit import UnsafeHit
    from kvseal.report.console import summary
    from kvseal.report.run_folder import read_folder
    from kvseal.report.unsafe_hit import console

    found = read_folder(args.folder)
    if isinstance(found, UnsafeHit):
        shown = found.to_json()
        name = args.folder.resolve().name
        print(json.dumps(shown, indent=2) if args.json else console(shown, name))
        return found.verdict.exit_status
    if args.json:
        document = {
            "run": found.name,
            "verdict": found.result["verdict"],
            "reasons": found.result["reasons"],
            "unlisted_files": list(found.unlisted),
            "result": found.result,
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(summary(found.result, found.name))
        for name in found.unlisted:
            print(f"not part of the evidence, as files.json does not list it: {name}")
    return found.judgement.verdict.exit_status
