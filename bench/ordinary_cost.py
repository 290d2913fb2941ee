# SPDX-License-Identifier: Apache-2.0
"""What do the edits cost ordinary traffic? Patched LMCache against stock, pair by pair.

    PYTHONPATH=src PYTHON bench/ordinary_cost.py --stock ENV --patched ENV --out DIR

ENV are engine environments with one release of LMCache, of which the first has
none of its files edited; PYTHON is that of either. Real LMCache servers with
shared memory on loopback, each with a client in its own environment, which
registers KV of made-up size as LMCache's SDK does, through the message queue;
no vLLM. A round gives all of them the same token IDs and KV and makes five
passes over them, each under another cache salt and in an order drawn anew: a
lookup that misses, a store, a lookup that finds all, a retrieve. A step counts
with its fastest pass. Prints ratios of times, median over rounds with a bootstrap
interval, and of CPU time of client and server together, which other programs
disturb less; beside them those of a second stock server against the first: so
much is the machine's noise. No variant is named anywhere.

Every key is compared: as it is sent, as the server keeps it, as a file is
called; and each server is told to delete what the other side's client says that
it holds. Exit status 0 when all of that is equal, whatever the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

STEPS = ("lookup that misses", "store", "lookup that finds", "retrieve")
TOTAL, CPU = "all four", "CPU time"
STOCK, AGAIN, PATCHED = "stock", "stock again", "patched"
SALTS = ("", "tenant-a", "tenant-b", "tenant-c", "tenant-d")
"""Passes of a round, with the same token IDs and KV under keys of their own."""
Times = dict[str, dict[str, float]]
"""Seconds by side and step."""
RESAMPLES = 2000
WARM_UP = 2


def main() -> int:
    """Measure, print, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stock", type=Path, required=True, metavar="ENV")
    parser.add_argument("--patched", type=Path, required=True, metavar="ENV")
    parser.add_argument("--out", type=Path, required=True, help="a folder for result and logs")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 16384, 32768])
    parser.add_argument("--rounds", type=int, default=40, help="for each number of tokens")
    parser.add_argument("--chunk-size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-size", type=int, default=16)
    parser.add_argument("--l1-gib", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with started(args) as sides:
        versions = {name: side.ask({"do": "versions"}) for name, side in sides.items()}
        rounds, keys_equal = measured(args, sides)
    table = {tokens: ratios_of(part, args.seed) for tokens, part in rounds.items()}
    everything = ratios_of([entry for part in rounds.values() for entry in part], args.seed)
    document = {
        "schema": "kvseal.ordinary-cost.v1",
        "versions": versions,
        "settings": {n: v for n, v in vars(args).items() if not isinstance(v, Path)},
        "keys_equal": keys_equal,
        "ratios": {**table, "all": everything},
    }
    text = json.dumps(document, indent=2) + "\n"
    (args.out / "ordinary-cost.json").write_text(text, encoding="utf-8")
    print(markdown({**table, "all": everything}))
    equal = "equal byte for byte" if all(keys_equal.values()) else f"NOT equal: {keys_equal}"
    print(f"\n{args.rounds} rounds each; ordinary keys of both: {equal}")
    return 0 if all(keys_equal.values()) else 1


class Side:
    """A server and the client in its environment, which does what it is asked, line by line."""

    def __init__(self, process: subprocess.Popen[str], cache: Any, server_pid: int) -> None:
        self._process = process
        self._server = Path(f"/proc/{server_pid}/task")
        self.cache = cache

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client ended: read client-*.log")
        return json.loads(line)

    def once(self, salt: str) -> dict[str, float]:
        """Make one pass; return the seconds of its steps, and the CPU time of both."""
        before = self._server_cpu()
        times = self.ask({"do": "pass", "salt": salt})
        return {**times, CPU: times.pop("client CPU") + self._server_cpu() - before}

    def _server_cpu(self) -> float:
        """CPU seconds of the server's threads, of which none ends during a pass."""
        spent = (task.read_text().split()[0] for task in self._server.glob("*/schedstat"))
        return sum(map(int, spent)) / 1e9


@contextmanager
def started(args: argparse.Namespace) -> Iterator[dict[str, Side]]:
    """Start three servers and their clients for the length of a `with` block."""
    from kvseal.engines.lmcache import CacheServer, started_lmcache
    from kvseal.engines.lmcache_http import LMCacheHTTP
    from kvseal.process import segment_name

    server = CacheServer(chunk_size_tokens=args.chunk_size, l1_gib=args.l1_gib)
    environments = {STOCK: args.stock, AGAIN: args.stock, PATCHED: args.patched}
    source = str(Path(__file__).resolve().parent.parent / "src")
    quiet = {"CUDA_VISIBLE_DEVICES": "", "LMCACHE_LOG_LEVEL": "ERROR", "PYTHONPATH": source}
    with ExitStack() as stack:
        servers = {}
        for name, environment in environments.items():
            run_id = f"ordinary-{name.replace(' ', '-')}"
            servers[name] = stack.enter_context(
                started_lmcache(
                    server,
                    python=str(environment / "bin" / "python"),
                    log=args.out / f"lmcache-{name.replace(' ', '-')}.log",
                    segment=segment_name(run_id),
                    run_id=run_id,
                )
            )
        sides = {}
        for name, environment in environments.items():
            servers[name].wait_ready()
            endpoint = servers[name].endpoint
            log = stack.enter_context(
                (args.out / f"client-{name.replace(' ', '-')}.log").open("w", encoding="utf-8")
            )
            sizes = [str(size) for size in (args.layers, args.heads, args.head_size)]
            process = subprocess.Popen(
                [
                    str(environment / "bin" / "python"),
                    str(Path(__file__).with_name("ordinary_client.py")),
                    *(endpoint.url, endpoint.http_url, *sizes),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **quiet, "LMCACHE_TRACK_USAGE": "false"},
            )
            stack.callback(ended, process)
            pid = servers[name].process.pid
            sides[name] = Side(process, LMCacheHTTP(endpoint.http_url), pid)
        yield sides


def ended(process: subprocess.Popen[str]) -> None:
    """Let a client unregister and end."""
    assert process.stdin is not None  # noqa: S101
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()


def measured(
    args: argparse.Namespace, sides: Mapping[str, Side]
) -> tuple[dict[int, list[Times]], dict[str, bool]]:
    """Run all rounds; return their times by number of tokens, and which keys are equal."""
    draw = random.Random(args.seed)  # noqa: S311 - token IDs and an order, no secret
    rounds: dict[int, list[Times]] = {}
    equal = {"sent": True, "kept": True, "file names": True, "found by the other": True}
    for tokens in args.tokens:
        rounds[tokens] = []
        for number in range(-WARM_UP, args.rounds):
            token_ids = [draw.randrange(100_000) for _ in range(tokens)]
            taken = {"do": "take", "token_ids": token_ids, "seed": abs(number)}
            for side in sides.values():
                side.ask(taken)
            passes: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
            for salt in SALTS:
                for name in draw.sample(list(sides), len(sides)):
                    passes[name].append(sides[name].once(salt))
            if number >= 0:
                rounds[tokens].append({name: fastest(each) for name, each in passes.items()})
            for salt in SALTS:
                compare(sides, salt, tokens // args.chunk_size, equal)
            equal["found by the other"] &= not any(s.cache.object_count() for s in sides.values())
        print(f"{tokens} tokens: done", file=sys.stderr)
    return rounds, equal


def fastest(passes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the least time of each step: whatever disturbs only ever adds."""
    return {step: min(times[step] for times in passes) for step in (*STEPS, CPU)}


def compare(sides: Mapping[str, Side], salt: str, chunks: int, equal: dict[str, bool]) -> None:
    """Note in `equal` which keys are not, and delete by each other's keys what was stored."""
    keys = {name: side.ask({"do": "keys", "salt": salt}) for name, side in sides.items()}
    for what in ("sent", "kept", "file names"):
        equal[what] &= keys[STOCK][what] == keys[PATCHED][what]
    for name, other in ((STOCK, PATCHED), (PATCHED, STOCK), (AGAIN, STOCK)):
        deleted = sides[name].cache.delete(keys[other]["kept"])
        equal["found by the other"] &= deleted == chunks


def ratios_of(rounds: Sequence[Times], seed: int) -> dict[str, Any]:
    """Return, for each step, the median ratio over rounds and its 95 % bootstrap interval."""
    result: dict[str, Any] = {}
    for name in (PATCHED, AGAIN):
        result[name] = {}
        for step in (*STEPS, TOTAL, CPU):
            ratios = [seconds(times[name], step) / seconds(times[STOCK], step) for times in rounds]
            low, high = interval(ratios, seed)
            result[name][step] = {
                "median": round(statistics.median(ratios), 4),
                "low": round(low, 4),
                "high": round(high, 4),
                "rounds": len(ratios),
            }
    return result


def seconds(times: Mapping[str, float], step: str) -> float:
    """Return the seconds of a step, or of all of them."""
    return sum(times[one] for one in STEPS) if step == TOTAL else times[step]


def interval(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the median, by resampling."""
    draw = random.Random(seed)  # noqa: S311 - statistics
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def markdown(table: Mapping[Any, Mapping[str, Any]]) -> str:
    """Return the ratios by tokens and step."""
    names = {PATCHED: "patched ÷ stock", AGAIN: "stock ÷ stock"}
    lines = [
        f"| tokens | time | {' | '.join((*STEPS, TOTAL, CPU))} |",
        f"| --- | --- |{' --- |' * (len(STEPS) + 2)}",
    ]
    for tokens, by_side in table.items():
        for side, words in names.items():
            cells = [
                f"{cell['median']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})"
                for cell in by_side[side].values()
            ]
            lines.append(f"| {tokens} | {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
