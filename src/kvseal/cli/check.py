# SPDX-License-Identifier: Apache-2.0
"""`kvseal check RUN`: judge a run folder again, from its files alone, on any machine.

Digests first, then spec and history; the stored result must be what they give.
Exit status 0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE or files that can't be
trusted. Writes nothing but the fixture that --write-fixture asks for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvseal.errors import OptionError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "folder", type=Path, metavar="RUN", help="run folder, or a report of `kvseal verify`"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--write-fixture",
        type=Path,
        metavar="FILE",
        help="of a verification: write what it gave as an acceptance fixture",
    )


def run(args: argparse.Namespace) -> int:
    """Judge the run and return the exit status of its verdict."""
    from kvseal.checkers.unsafe_hit import UnsafeHit
    from kvseal.report.console import summary
    from kvseal.report.matrix_folder import is_matrix
    from kvseal.report.run_folder import read_folder
    from kvseal.report.unsafe_hit import console
    from kvseal.report.verification_folder import is_verification

    if is_verification(args.folder):
        return _verification(args)
    if args.write_fixture is not None:
        raise OptionError(
            "only a verification can be recorded as a fixture",
            option="--write-fixture",
            value=str(args.write_fixture),
            remedy="name a report of `kvseal verify`",
        )
    if is_matrix(args.folder):
        return _matrix(args)
    found = read_folder(args.folder)
    if isinstance(found, UnsafeHit):
        shown = found.to_json()
        name = args.folder.resolve().name
        print(json.dumps(shown, indent=2) if args.json else console(shown, name))
        return found.verdict.exit_status
    _show(found.result, found.name, found.unlisted, summary, as_json=args.json)
    return found.judgement.verdict.exit_status


def _matrix(args: argparse.Namespace) -> int:
    """Judge a matrix run."""
    from kvseal.report.matrix import console
    from kvseal.report.matrix_folder import read_matrix

    found = read_matrix(args.folder)
    _show(found.result, found.name, found.unlisted, console, as_json=args.json)
    return found.verdict.exit_status


def _show(
    result: dict[str, Any],
    name: str,
    unlisted: Sequence[str],
    summary: Callable[[dict[str, Any], str], str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        document = {
            "run": name,
            "verdict": result["verdict"],
            "reasons": result["reasons"],
            "unlisted_files": list(unlisted),
            "result": result,
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    print(summary(result, name))
    for file in unlisted:
        print(f"not part of the evidence, as files.json does not list it: {file}")


def _verification(args: argparse.Namespace) -> int:
    """Judge a verification; with --json its report is all that standard output gets."""
    from kvseal.report.verification import console
    from kvseal.report.verification_folder import read_verification

    found = read_verification(args.folder)
    if args.write_fixture is not None:
        _write_fixture(args.write_fixture, found.report)
    if args.json:
        print(json.dumps(found.report, indent=2, ensure_ascii=False))
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
    else:
        print(console(found.report, str(found.places.report), found.notes))
    return int(found.report["exit_status"])


def _write_fixture(path: Path, report: dict[str, Any]) -> None:
    from kvseal import store
    from kvseal.checkers.verification.recorded import fixture_of

    def refusal(message: str, remedy: str) -> OptionError:
        return OptionError(message, option="--write-fixture", value=str(path), remedy=remedy)

    document = fixture_of(report, name=path.stem)
    if path.exists() or path.is_symlink():
        raise refusal("file exists already", "name another, or move this one away")
    try:
        store.write_json(path, document)
    except OSError as error:
        raise refusal(
            f"the fixture can't be written: {error.strerror}", "name a file in a folder of yours"
        ) from None
