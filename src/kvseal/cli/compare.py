# SPDX-License-Identifier: Apache-2.0
"""`kvseal compare`: run a spec on this machine and leave a judged run folder.

Runs in the engine environment. However the run ends, the folder holds a valid
result.json, which says INCONCLUSIVE where the history does not reach the end.
Exit status: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or error, 130 interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--spec", type=Path, required=True, help="run spec (run-spec.json)")
    parser.add_argument("--out", type=Path, required=True, help="run folder, which must not exist")
    parser.add_argument(
        "--show-unsafe-hit",
        action="store_true",
        help="instead of the comparison, send one ordinary prompt that is equal to a "
        "transformed entry's kept tokens and show whose KV it gets",
    )


def run(args: argparse.Namespace) -> int:
    """Run, judge, and print the summary; return the verdict's exit status."""
    import os

    # Set before anything imports torch: the process that uses LMCache's SDK must
    # not see a GPU (docs/upstream-notes.md). Engines get theirs from the spec.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ |= {"HF_HUB_OFFLINE": "1", "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1"}
    os.environ.pop("LMCACHE_MP_TRANSFER_MODE", None)

    from kvseal.drivers.recording import recorded
    from kvseal.host.facts import gather
    from kvseal.process import Interrupts, shielded
    from kvseal.spec.runspec import RunSpec

    spec = RunSpec.load(args.spec)
    recording = None
    with Interrupts():
        host = gather(spec)
        try:
            with recorded(spec, args.out, host) as recording:
                _conclude(spec, args.out)
                if args.show_unsafe_hit:
                    from kvseal.drivers.unsafe_hit import run_unsafe_hit as driver
                else:
                    from kvseal.drivers.run import run_comparison as driver
                driver(spec, recording, host)
        finally:
            # Only a folder that this run made: one that was there is not touched.
            if recording is not None:
                with shielded():
                    status = _conclude(spec, args.out)
    return status


def _conclude(spec: RunSpec, folder: Path) -> int:
    """Judge what the history holds by now, write result.json and files.json, say it."""
    from kvseal import store
    from kvseal.checkers.compare import judge
    from kvseal.records.history import read_history
    from kvseal.records.result import assemble

    history = read_history(folder / "history.jsonl")
    judgement = judge(spec, history)
    store.write_json(folder / "result.json", assemble(spec, history, judgement.to_json()))
    store.write_manifest(folder)
    return judgement.verdict.exit_status
