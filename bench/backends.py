# SPDX-License-Identifier: Apache-2.0
"""What do the edits cost at each L2 backend? LMCache's adapters, edited against stock.

    PYTHONPATH=src PYTHON bench/backends.py --stock ENV --patched ENV --out FILE [--packages DIR]

ENV are engine environments with one release of LMCache, of which the first has
none of its files edited. Each side is a process of its own, which opens the
adapter that the other has too; the backend's server is one for both. A round is
a pass of each side over entries of its own, in an order drawn anew: a lookup that
misses, a store, a lookup that finds, a retrieve (lookup and load). A second process
of stock shows the machine's noise; the edited LMCache makes a pass with ordinary
keys and one with a variant in every key. Prints medians over rounds and
ratios of them, and writes JSON; a backend that can't run is a row that says why.
Exit status 0 when every backend ran or said why not, whatever the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kvseal.backends import registry
from kvseal.backends.backend import Backend, Running, Site
from kvseal.errors import KvsealError

STEPS = ("lookup that misses", "store", "lookup that finds", "retrieve")
SIDES = {"stock": False, "stock again": False, "patched": False, "patched, variant": True}
"""The sides, and whether their keys carry a variant. "stock again" shows the machine's noise."""
PROCESSES = ("stock", "stock again", "patched")
"""One each; the last has two sides."""
WARM_UP = 2


class Client:
    """backend_client.py in one environment."""

    def __init__(self, environment: Path, packages: Sequence[Path]) -> None:
        self.python = str(environment / "bin/python")
        here = Path(__file__).resolve().parent
        path = os.pathsep.join(map(str, (here.parent / "src", *packages)))
        self._process = subprocess.Popen(
            [self.python, str(here / "backend_client.py")],
            env={**os.environ, "PYTHONPATH": path, "LMCACHE_LOG_LEVEL": "ERROR"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        """Send a request and return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise KvsealError("a side has ended", value=self.python, remedy="its errors are above")
        return json.loads(line)

    def end(self) -> None:
        """Let it end, and wait."""
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.close()
        self._process.wait(30)


def measured(
    running: Running, clients: dict[str, Client], options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of every step, by side, one a round."""
    opening = {
        "adapter": running.adapters[0],
        "environment": dict(running.environment),
        "python_path": list(map(str, running.python_path)),
        "payload_bytes": options.kib << 10,
    }
    versions = {side: client.ask(do="open", **opening) for side, client in clients.items()}
    if len(set(versions.values())) != 1:
        raise KvsealError("the sides have different releases of LMCache", value=versions)
    order = random.Random(options.seed)  # noqa: S311
    times: dict[str, dict[str, list[float]]] = {
        side: {step: [] for step in STEPS} for side in SIDES
    }
    for number in range(WARM_UP + options.rounds):
        for side in order.sample(list(SIDES), len(SIDES)):
            client = clients[side.partition(",")[0]]
            seed = f"{options.seed} {number} {side}"
            done = client.ask(do="pass", seed=seed, count=options.count, variant=SIDES[side])
            for step in STEPS if number >= WARM_UP else ():
                times[side][step].append(done[step])
    for client in clients.values():
        client.ask(do="close")
    return times


def row(
    backend: Backend, clients: dict[str, Client], options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Return what was measured of a backend, or why nothing was."""
    python = clients["patched"].python
    if backend.apart:
        return {"backend": backend.name, "not_run": backend.apart}
    try:
        backend.require(
            version=options.lmcache, python=python, python_path=options.packages, salted=False
        )
        site = Site(
            folder / "data",
            run_id=f"bench-{os.getpid()}",
            logs=folder / "logs",
            python=python,
            packages=options.packages,
        )
        with backend.started(site) as running:
            times = measured(running, clients, options)
    except KvsealError as error:
        return {"backend": backend.name, "not_run": error.message}
    medians = {
        side: {step: statistics.median(series) for step, series in steps.items()}
        for side, steps in times.items()
    }
    return {
        "backend": backend.name,
        "median_seconds": medians,
        "ratio": {
            side: {step: medians[side][step] / medians["stock"][step] for step in STEPS}
            for side in SIDES
            if side != "stock"
        },
        "seconds": times,
    }


def lmcache_of(environment: Path) -> str:
    """Return the release of LMCache in an environment."""
    asked = "import importlib.metadata as m; print(m.version('lmcache'))"
    return subprocess.run(
        [str(environment / "bin/python"), "-c", asked], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Measure all backends asked for; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stock", type=Path, required=True)
    parser.add_argument("--patched", type=Path, required=True)
    parser.add_argument("--packages", type=Path, action="append", default=[])
    parser.add_argument("--backends", nargs="*", default=registry.NAMES, choices=registry.NAMES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--count", type=int, default=8, help="entries a pass")
    parser.add_argument("--kib", type=int, default=256, help="KiB an entry")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.lmcache = lmcache_of(options.patched)
    rows = []
    with ExitStack() as stack:
        clients = {}
        for name in PROCESSES:
            environment = getattr(options, name.removesuffix(" again"))
            clients[name] = Client(environment, options.packages)
            stack.callback(clients[name].end)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvseal-bench-")))
        for name in options.backends:
            rows.append(row(registry.backend(name), clients, options, folder / name))
            print(as_line(rows[-1]), flush=True)
    document = {
        "lmcache": options.lmcache,
        "rounds": options.rounds,
        "entries_a_pass": options.count,
        "entry_kib": options.kib,
        "backends": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def as_line(measured_row: dict[str, Any]) -> str:
    """Return a row as a line: milliseconds of stock, and both ratios, step by step."""
    name = f"{measured_row['backend']:18}"
    if "not_run" in measured_row:
        return f"{name} not run: {measured_row['not_run']}"
    stock = measured_row["median_seconds"]["stock"]
    ratio = measured_row["ratio"]
    cells = [
        f"{step} {1000 * stock[step]:.2f} ms ×{ratio['patched'][step]:.2f}"
        f" (variant ×{ratio['patched, variant'][step]:.2f},"
        f" stock again ×{ratio['stock again'][step]:.2f})"
        for step in STEPS
    ]
    return f"{name} {'; '.join(cells)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
