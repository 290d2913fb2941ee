# SPDX-License-Identifier: Apache-2.0
"""Is every codemod needed? One is left out of an engine environment, then the matrix runs.

    PYTHONPATH=src python bench/codemod_mutants.py --spec FILE --out DIR [--only NAME …] [--jobs N]

FILE is a run spec of lmcache-snapkv-matrix whose environment is built and
patched; it is not touched: each mutant is a copy by hard links beside it,
patched anew with `kvseal patch apply --without NAME`, and removed at the end
(--keep leaves it). `kvseal patch` never writes a file in place, so the copy's
files are its own. `kvseal matrix` then runs the rows that codemod_rows.py names
for the codemod: some that must turn red, and some that must stay green, or a
broken stack would look like a caught mutant. Without restarts and without mixed
requests. Prints a table and leaves mutants.json, mutants.md and each run's
folder in DIR. Exit status 0 when every mutant was caught by the rows that it
was expected of, and by no others of those named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from codemod_rows import MUTANTS, Rows

NOT_LINKED = (".lock", "lock")
"""Held while somebody changes the environment; a link would be one lock for two."""
FAILED = ("unsafe_hit", "wrong_answer", "not_refused", "lost_hit", "not_seen")


def main() -> int:
    """Run the mutants, print, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="run spec of the matrix")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what comes of it")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these codemods")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time")
    parser.add_argument("--keep", action="store_true", help="leave the copied environments")
    args = parser.parse_args()
    unknown = set(args.only) - set(MUTANTS)
    if unknown or args.jobs < 1:
        parser.error(f"--only takes {', '.join(MUTANTS)}; --jobs at least 1")
    spec = json.loads(args.spec.read_text(encoding="utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)

    def one(name: str) -> dict[str, Any]:
        print(f"{name}: {', '.join(MUTANTS[name].cases)}", file=sys.stderr)
        return trial(name, MUTANTS[name], spec, args.out, keep=args.keep)

    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(one, args.only or MUTANTS))
    print(shown := markdown(found))
    document = {"schema": "kvseal.codemod-mutants.v1", "mutants": found}
    text = json.dumps(document, indent=2) + "\n"
    (args.out / "mutants.json").write_text(text, encoding="utf-8")
    (args.out / "mutants.md").write_text(shown + "\n", encoding="utf-8")
    return 0 if all(entry["as_expected"] for entry in found) else 1


def trial(
    name: str, rows: Rows, spec: Mapping[str, Any], out: Path, *, keep: bool
) -> dict[str, Any]:
    """Make one mutant, run its rows, and say what came of it."""
    started = time.monotonic()
    original = Path(spec["environment"]["path"])
    mutant, run = original.with_name(f"{original.name}-without-{name}"), out / name
    for left in (mutant, run):
        shutil.rmtree(left, ignore_errors=True)
    try:
        linked(original, mutant)
        python = str(mutant / "bin" / "python")
        patched = kvseal(python, "patch", "apply", "--env", str(mutant), "--without", name)
        if patched.returncode:
            found = {"ended": "patch refused", "message": last_line(patched.stderr)}
            return {"codemod": name, "as_expected": False, **found}
        file = out / f"{name}.json"
        file.write_text(json.dumps(spec_of(spec, rows, mutant), indent=1), encoding="utf-8")
        ran = kvseal(python, "matrix", "--spec", str(file), "--out", str(run))
        result = run / "result.json"
        if not result.is_file():
            found = {"ended": "did not run", "message": last_line(ran.stderr)}
            return {"codemod": name, "as_expected": False, **found}
        read = json.loads(result.read_text(encoding="utf-8"))
        seconds = round(time.monotonic() - started)
        return {"codemod": name, **judged(rows, read), "seconds": seconds}
    finally:
        if not keep:
            shutil.rmtree(mutant, ignore_errors=True)


def linked(original: Path, copy: Path) -> None:
    """Copy an environment without its bytes; files that are locked on are left out."""
    shutil.copytree(
        original,
        copy,
        symlinks=True,
        copy_function=os.link,
        ignore=lambda _, names: [name for name in names if name in NOT_LINKED],
    )


def spec_of(spec: Mapping[str, Any], rows: Rows, environment: Path) -> dict[str, Any]:
    """Return the run spec of a mutant: its environment and its rows, nothing restarted."""
    return {
        **spec,
        "environment": {**spec["environment"], "path": str(environment)},
        "matrix": {
            **spec["matrix"],
            "backends": list(rows.backends),
            "cases": list(rows.cases),
            "restarts": [],
            "mixed_requests": 0,
            "identity": "variant",
        },
    }


def kvseal(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kvseal from this checkout, with bytecode beside its source, where it is linked too."""
    apart = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent / "src")
    return subprocess.run(
        [python, "-m", "kvseal", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "nothing was said")


def judged(rows: Rows, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a mutant's run ended, its red rows, and where that is not as expected."""
    cells = {
        (row["case"], cell["backend"]): cell["outcome"]
        for row in result["rows"]
        for cell in row["cells"]
    }
    reasons = result["reasons"]
    stopped = [entry["message"] for entry in reasons if entry["code"] == "run.error"]
    started = all(entry["code"] != "engines.missing" for entry in reasons)
    red = {place for place, outcome in cells.items() if outcome in FAILED}
    missed = rows.red - red
    hurt = {place for place in rows.green if cells.get(place) != "passed"}
    if not started:
        ended = "engines don't start"
    else:
        ended = "SURVIVED" if result["verdict"] == "PASS" else result["verdict"]
    return {
        "ended": ended,
        "message": stopped[0].splitlines()[0] if stopped else "",
        "as_expected": started == rows.starts and not missed and not hurt,
        "red": {text(place): cells[place] for place in sorted(red)},
        "open": sorted(text(place) for place, what in cells.items() if what == "inconclusive"),
        "not_red": sorted(map(text, missed)),
        "not_green": sorted(map(text, hurt)),
    }


def text(place: tuple[str, str]) -> str:
    """Return a case and a backend in one word."""
    return f"{place[0]}@{place[1]}"


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the table: which codemod was left out, how the run ended, what was red."""
    lines = [
        "| left out | ended | as expected | red rows | expected otherwise | s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for entry in found:
        red = ", ".join(f"{row} ({what})" for row, what in entry.get("red", {}).items())
        other = [f"{row} not red" for row in entry.get("not_red", ())]
        other += [f"{row} not green" for row in entry.get("not_green", ())]
        lines.append(
            f"| {entry['codemod']} | {entry['ended']} | {'yes' if entry['as_expected'] else 'NO'} "
            f"| {red or entry.get('message', '')} | {', '.join(other)} "
            f"| {entry.get('seconds', '')} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
