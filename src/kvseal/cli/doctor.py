# SPDX-License-Identifier: Apache-2.0
"""`kvseal doctor --spec run-spec.json`: every prerequisite, before anything is installed.

Needs nothing but Python and its standard library. All checks run and are
printed, whatever fails before; then one line of counts. Changes nothing on the
machine. Exit status 0, or 2 when a check failed; UNKNOWN is counted and does
not fail, since it may be a container that hides something.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from kvseal import store
from kvseal.host.checks import Outcome, Status, run_checks
from kvseal.host.checks.outcome import gib
from kvseal.host.facts import HostFacts, gather
from kvseal.process import Progress
from kvseal.spec.runspec import CommonSpec, load_spec

SCHEMA = "kvseal.doctor.v1"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "--spec",
        required=True,
        type=Path,
        metavar="FILE",
        help="run spec to check this machine against",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write checks and facts as JSON"
    )
    parser.add_argument(
        "--node-only",
        action="store_true",
        help="this machine runs the engines but keeps no results: leave the results root out",
    )


def run(args: argparse.Namespace) -> int:
    """Check this machine and print one line a check."""
    spec = load_spec(args.spec)
    with Progress("doctor: looking at this machine"):
        facts = gather(spec)
    if args.node_only:
        kept = {name: root for name, root in facts.roots.items() if name != "results"}
        facts = dataclasses.replace(facts, roots=kept)
    outcomes = run_checks(facts, spec)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(report_lines(facts, spec, outcomes, width)))
    failed = any(outcome.status is Status.FAIL for outcome in outcomes)
    if args.json is not None:
        store.write_json(
            args.json,
            {
                "schema": SCHEMA,
                "ready": not failed,
                "spec_sha256": spec.sha256(),
                "checks": [outcome.to_json() for outcome in outcomes],
                "facts": facts.to_json(),
            },
        )
    return 2 if failed else 0


def report_lines(
    facts: HostFacts, spec: CommonSpec, outcomes: Sequence[Outcome], width: int | None
) -> list[str]:
    """Return the report, its lines folded to `width` columns unless that is None."""
    memory = facts.memory.value
    machine = [
        facts.cpu_model.value or "unknown CPU",
        f"{facts.cpu_count.value} CPUs",
        gib(memory.total_bytes) if memory else "unknown memory",
        *(gpu.name for gpu in facts.gpus.value or ()),
    ]
    lines = [
        f"kvseal doctor: {spec.workflow} on {spec.device}, vLLM {spec.vllm.version}, "
        f"LMCache {spec.lmcache.version or spec.lmcache.ref}, {spec.model.name}",
        f"this machine: {', '.join(machine)}",
        "",
    ]
    for outcome in outcomes:
        text = f"{outcome.status.value:<7}  {outcome.name}: {outcome.found}"
        lines += _folded(f"{text} (needed: {outcome.needed})", width)
        for remedy in outcome.remedies:
            lines += _folded(f"{'':<9}remedy: {remedy}", width)
    count = {status: sum(item.status is status for item in outcomes) for status in Status}
    lines += [
        "",
        f"{count[Status.PASS]} passed, {count[Status.FAIL]} failed, "
        f"{count[Status.UNKNOWN]} unknown",
    ]
    if spec.device == "cuda" and facts.gpus.value is None:
        lines += _folded(
            "No usable NVIDIA GPU here. The same run without one: "
            f"`make defconfig-{spec.workflow}-cpu && make`",
            width,
        )
    return lines


def _folded(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(
        text,
        max(40, width),
        subsequent_indent=" " * 11,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
