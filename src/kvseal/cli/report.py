# SPDX-License-Identifier: Apache-2.0
"""`kvseal report RUN…`: write reports of run folders and print their summary.

Files are called report.json, report.md and report.html. Each run is judged
again from its files; exit status 0 says that the reports were written, whatever
the verdicts (`kvseal check` is the verb for that).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kvseal.errors import OptionError

FORMATS = ("json", "markdown", "html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="run folder")
    parser.add_argument(
        "--format",
        default=",".join(FORMATS),
        metavar="LIST",
        help=f"which of {','.join(FORMATS)} to write (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to (default: into RUN, if it is only one)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the reports; return 0."""
    from kvseal.report.console import summary
    from kvseal.report.document import document
    from kvseal.report.html import html
    from kvseal.report.markdown import markdown
    from kvseal.report.run_folder import read_run
    from kvseal.store import disk_errors, write_json, write_text

    formats = dict.fromkeys(args.format.split(","))
    for name in formats:
        if name not in FORMATS:
            raise OptionError(
                "unknown report format", option="--format", value=name, expected=",".join(FORMATS)
            )
    if args.out is None and args.folders[1:]:
        raise OptionError(
            "a report of several runs belongs to none of them",
            option="--out",
            expected="a folder for the report",
            remedy="add --out DIR",
        )
    runs = [read_run(folder) for folder in args.folders]
    out: Path = runs[0].path if args.out is None else args.out
    try:
        with disk_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        for name in formats:
            if name == "json":
                write_json(out / "report.json", document(runs))
            elif name == "markdown":
                write_text(out / "report.md", markdown(runs))
            else:
                write_text(out / "report.html", html(runs))
    except OSError as error:
        raise OptionError(
            f"the report can't be written: {error.strerror}",
            option="--out",
            value=str(out),
            expected="a folder this user may write in",
        ) from None
    for found in runs:
        print(summary(found.result, found.name), end="\n\n")
    print(f"report: {out}")
    return 0
