# SPDX-License-Identifier: Apache-2.0
"""`kvseal report RUN…`: write reports of run folders and print their summary.

Files are called report.json, report.md and report.html. They go into the run
folder, or into the evidence folder of a verification's report, unless --out
names another. Each run is judged again from its files; exit status 0 says that
the reports were written, whatever the verdicts (`kvseal check` is the verb for
that).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.errors import OptionError

FORMATS = ("json", "markdown", "html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folder, or a report of `kvseal verify`",
    )
    parser.add_argument(
        "--format",
        default=",".join(FORMATS),
        metavar="LIST",
        help=f"which of {','.join(FORMATS)} to write (default: all)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to (default: into RUN or its evidence folder, if it is only one)",
    )


@dataclass(frozen=True)
class _Reports:
    """What there is to say of some runs: a summary each, and one report in each format."""

    folder: Path
    summaries: Sequence[str]
    json: Callable[[], Mapping[str, Any]]
    markdown: Callable[[], str]
    html: Callable[[], str]


def run(args: argparse.Namespace) -> int:
    """Write the reports; return 0."""
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
    reports = _reports(args.folders)
    out: Path = reports.folder if args.out is None else args.out
    try:
        with disk_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        for name in formats:
            if name == "json":
                write_json(out / "report.json", reports.json())
            elif name == "markdown":
                write_text(out / "report.md", reports.markdown())
            else:
                write_text(out / "report.html", reports.html())
    except OSError as error:
        raise OptionError(
            f"the report can't be written: {error.strerror}",
            option="--out",
            value=str(out),
            expected="a folder this user may write in",
        ) from None
    for text in reports.summaries:
        print(text, end="\n\n")
    print(f"report: {out}")
    return 0


def _reports(folders: Sequence[Path]) -> _Reports:
    """Return what there is to say of `folders`, which must be runs of one kind."""
    from kvseal.report.matrix_folder import is_matrix
    from kvseal.report.verification_folder import is_verification

    kinds = (
        ("a verification", is_verification, _verifications),
        ("a matrix", is_matrix, _matrices),
    )
    for name, is_one, reports in kinds:
        found = [folder for folder in folders if is_one(folder)]
        if found and len(found) < len(folders):
            raise OptionError(
                f"{name} and a run of another kind have no report in common",
                option="RUN",
                value=", ".join(map(str, folders)),
                expected="runs of one kind",
                remedy=f"report these alone: {', '.join(map(str, found))}",
            )
        if found:
            return reports(folders)
    return _comparisons(folders)


def _comparisons(folders: Sequence[Path]) -> _Reports:
    from kvseal.report.console import summary
    from kvseal.report.document import document
    from kvseal.report.html import html
    from kvseal.report.markdown import markdown
    from kvseal.report.run_folder import read_run

    runs = [read_run(folder) for folder in folders]
    return _Reports(
        folder=runs[0].path,
        summaries=[summary(found.result, found.name) for found in runs],
        json=lambda: document(runs),
        markdown=lambda: markdown(runs),
        html=lambda: html(runs),
    )


def _matrices(folders: Sequence[Path]) -> _Reports:
    from kvseal.report.matrix import console, document, html, markdown
    from kvseal.report.matrix_folder import read_matrix

    runs = [read_matrix(folder) for folder in folders]
    return _Reports(
        folder=runs[0].path,
        summaries=[console(found.result, found.name) for found in runs],
        json=lambda: document(runs),
        markdown=lambda: markdown(runs),
        html=lambda: html(runs),
    )


def _verifications(folders: Sequence[Path]) -> _Reports:
    from kvseal.report.verification import console, markdown, page
    from kvseal.report.verification_document import document
    from kvseal.report.verification_folder import read_verification

    runs = [read_verification(folder) for folder in folders]
    return _Reports(
        folder=runs[0].places.folder,
        summaries=[console(found.report, found.name, found.notes) for found in runs],
        json=lambda: document(runs),
        markdown=lambda: "\n".join(
            markdown(found.report, found.name, found.notes) for found in runs
        ),
        html=lambda: page([(found.report, found.name, found.notes) for found in runs]),
    )
