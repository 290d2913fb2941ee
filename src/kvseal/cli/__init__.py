# SPDX-License-Identifier: Apache-2.0
"""`kvseal VERB …`: one module a verb; parse, call, exit status.

A verb's module holds HELP, `configure(parser)` and `run(args)`. It is imported
only when asked for, so `kvseal doctor` works on a machine where nothing is
installed yet. Errors a user can act on end here as text on stderr and the
exit status of their class; anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from kvseal import __version__
from kvseal.errors import KvsealError

VERBS = {
    "spec": "translate a configuration into a run spec",
    "doctor": "check this machine against a run spec",
    "model": "prepare a model's weights for a run",
    "patch": "apply, revert or show the edits to installed packages",
    "compare": "run baseline against SnapKV",
    "verify": "compare reused KV with recomputation, token by token",
    "matrix": "ask for transformed KV in every way that must not be served",
    "unsafe-hit": "show whose KV an ordinary prompt is served",
    "audit": "say what is in an L2 store, and what must not be there",
    "check": "judge a run folder again from its files alone",
    "report": "write reports from run folders",
}


def _module(verb: str) -> Any:
    return importlib.import_module(f"kvseal.cli.{verb.replace('-', '_')}")


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit status (see README, "Exit statuses")."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="kvseal", description="Proves that a reused KV cache is the one that was asked for."
    )
    parser.add_argument("--version", action="version", version=f"kvseal {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, summary in VERBS.items():
        verb_parser = verbs.add_parser(name, help=summary, description=summary)
        if name in arguments[:1]:
            _module(name).configure(verb_parser)
    args = parser.parse_args(arguments)
    try:
        status: int = _module(args.verb).run(args)
    except KvsealError as error:
        print(f"kvseal {args.verb}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"kvseal {args.verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing more can be said to it.
        sys.stderr.close()
        return 0
    return status
