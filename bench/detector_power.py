# SPDX-License-Identifier: Apache-2.0
"""What does the verifier catch? Stored KV damaged between the cold answer and the reuse.

    PYTHONPATH=src PYTHON bench/detector_power.py --model DIR --out DIR

PYTHON is that of an engine environment. One `kvseal verify` run under the mp
contract, with its real driver, store and judge; between a probe's first answer
and its reuse the chunk's KV is read from the LMCache server, damaged, and
written back under the same keys. Then the same probes `--rounds` times with
nothing touched. Prints a table and leaves report, history and table.json in
--out. Exit status 0 when no change of a token passed and nothing clean failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLEAN = "clean"
HARMLESS = (CLEAN, "unchanged", "rolled")
"""Must not be caught: nothing done, the same bytes anew, the same tokens in another order."""


def main() -> int:
    """Measure, print, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True, help="a folder that does not exist yet")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--chunk-size", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--cache-gib", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20, help="clean runs of the probe set")
    parser.add_argument("--prompts", type=int, default=10, help="prompts that are damaged")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accept-deviation", action="append", default=[])
    args = parser.parse_args()
    # This process uses LMCache's SDK, which must not see a GPU; the engines do.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from kvseal.cli.execution import prepare_verifier
    from kvseal.spec.verify_request import VerifyRequest

    prepare_verifier()
    from kvseal.drivers.verify import evidence, preflight
    from kvseal.drivers.verify.run import run
    from kvseal.faults.stored_kv import FAULTS

    args.out.mkdir(parents=True)
    prepared = preflight.prepare(
        VerifyRequest(
            model=args.model,
            model_revision="",
            tokenizer=args.model,
            tokenizer_revision="",
            kv_connector="LMCacheMPConnector",
            contract="mp",
            suite="standard",
            reuse_counts=(1,),
            max_tokens=args.max_tokens,
            seed=args.seed,
            dtype=args.dtype,
            max_model_len=args.max_model_len,
            block_size=args.block_size,
            chunk_size=args.chunk_size,
            cache_gib=args.cache_gib,
            accepted_deviations=tuple(args.accept_deviation),
            visible_devices=devices,
        )
    )
    base = [
        probe
        for probe in prepared.probes
        if not probe.cold_prefix_tokens and probe.tokens > args.chunk_size
    ]
    plans = [(fault, probe) for fault in FAULTS for probe in base[: args.prompts]]
    plans += [(f"{CLEAN}{number}", probe) for number in range(args.rounds) for probe in base[:3]]
    probes = tuple(
        dataclasses.replace(
            probe, id=f"{fault}:{probe.id}", scope=f"{fault}.{probe.scope}", prompt=probe.prompt
        )
        for fault, probe in plans
    )
    report = run(
        dataclasses.replace(prepared, probes=probes),
        evidence.beside(args.out / "report.json"),
        observer=Tampering(prepared, args.seed),
    )
    table = summarise(report)
    (args.out / "table.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    show(table)
    print(f"evidence: {args.out}")
    missed = sum(row["changed_token_passed"] for row in table.values())
    false_alarms = sum(row["failed"] for name, row in table.items() if name in HARMLESS)
    return 0 if report["complete"] and not missed and not false_alarms else 1


class Tampering:
    """Damages the store before a reuse, as the probe's ID says; the driver's observer."""

    def __init__(self, prepared: Any, seed: int) -> None:
        self._prepared = prepared
        self._seed = seed
        self._sdk: Any = None
        self._kept: dict[str, Any] = {}

    @contextmanager
    def attached(self, target: str, server: Any) -> Iterator[Any]:
        """Hold a client of the LMCache server while the target runs."""
        if server is None:
            yield lambda *_: None
            return
        from kvseal.engines.geometry import ModelShape
        from kvseal.engines.sdk import KVCacheSDK

        model = self._prepared.model
        with KVCacheSDK(
            url=server.url,
            http_url=server.http_url,
            model_name=str(model.path),
            shape=ModelShape.from_config(model.config()),
            device=self._prepared.ground.device,
        ) as self._sdk:
            yield self._damage

    def _damage(self, probe: Any, repetition: int, scope: str) -> None:
        """Read the probe's KV, damage one chunk, write it back under the same keys."""
        from kvseal.faults.stored_kv import FAULTS, Chunk

        fault, _, name = probe.id.partition(":")
        if fault not in FAULTS:
            return
        size = self._sdk.chunk_size_tokens
        tokens = list(probe.token_ids)[: probe.tokens // size * size]
        found = self._sdk.retrieve_kv(tokens, scope)
        if found is None or found[0].shape[1] != len(tokens):
            raise RuntimeError(f"{probe.id}: not all chunks are stored")
        self._kept[name] = found
        draw = random.Random(f"{self._seed} {probe.id} {repetition}")  # noqa: S311  (no secret)
        start = draw.randrange(len(tokens) // size) * size
        other = self._other(name, len(tokens), found)
        keys, values = FAULTS[fault](Chunk(*found, start, start + size, *other, draw))
        self._sdk.delete(tokens, scope)
        self._sdk.store_kv(keys, values, tokens, scope)

    def _other(self, name: str, tokens: int, found: Any) -> Any:
        """KV of another prompt, at least as long; the prompt's own half rolled, where none is."""
        for other, kept in self._kept.items():
            if other != name and kept[0].shape[1] >= tokens:
                return kept
        return tuple(part.roll(tokens // 2, dims=1) for part in found)


def summarise(report: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Count, for each fault, what the reuses gave and how they were judged."""
    table: dict[str, Counter[str]] = {}
    for target in report["targets"]:
        for probe in target["probes"]:
            fault = probe["probe"].partition(":")[0]
            row = table.setdefault(CLEAN if fault.startswith(CLEAN) else fault, Counter())
            changed = any(answer["equal_control"] is False for answer in probe["answers"])
            row["reuses"] += 1
            row["changed_token"] += changed
            row["changed_token_failed"] += changed and probe["verdict"] == "fail"
            row["changed_token_inconclusive"] += changed and probe["verdict"] == "inconclusive"
            row["changed_token_passed"] += changed and probe["verdict"] == "pass"
            row["same_tokens_inconclusive"] += not changed and probe["verdict"] == "inconclusive"
            row["same_tokens_passed"] += not changed and probe["verdict"] == "pass"
            row["failed"] += probe["verdict"] == "fail"
    return {name: dict(row) for name, row in table.items()}


def show(table: dict[str, dict[str, int]]) -> None:
    """Print the table."""
    columns = [name for name in next(iter(table.values())) if name != "failed"]
    print(f"{'':18}", *(f"{name.replace('_', ' '):>27}" for name in columns))
    for fault, row in table.items():
        print(f"{fault:18}", *(f"{row[name]:27}" for name in columns))


if __name__ == "__main__":
    sys.exit(main())
