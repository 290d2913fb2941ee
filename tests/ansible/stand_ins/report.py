# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal report`: leaves report.md in the run folder."""

from pathlib import Path


def configure(parser):
    parser.add_argument("folders", type=Path, nargs="+")


def run(args):
    (args.folders[0] / "report.md").write_text("# report\n")
    print("summary of the report")
    return 0
