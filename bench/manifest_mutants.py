# SPDX-License-Identifier: Apache-2.0
"""Is every field of a manifest needed? One is left out of its bytes, then the matrix runs.

    PYTHONPATH=src PYTHON bench/manifest_mutants.py [--out DIR] [--only NAME …]

PYTHON is that of an engine environment whose LMCache carries all codemods; no
vLLM is started. A mutant changes TransformManifest.canonical_bytes, or the text
of a variant, in this process only. The rows are those of the table that exist
in the backend `process`, LMCache's own engine in this process; artifacts are
made by the real SnapKV of seeded synthetic KV; the real checker judges. A row
is red that the checker finds wrong, not merely unknown.

A mutant without a red row has survived. That is accepted of the few that change
no identity, each with a proof that is run here (manifest_proofs.py). Prints a table; --out writes
mutants.json and mutants.md. Exit status 0 when the unchanged manifest passes
every row and no mutant survived without a proof.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CHUNK, TOKENS = 64, 321
DROP_PERCENT, WINDOW, KERNEL, SEED = 50, 32, 5, 0
Manifest = Mapping[str, Any]
FILLING = "a" * 32
TEXTS: dict[str, Callable[[str], str]] = {
    "text without its letter": lambda text: text[1:],
    "text without its version": lambda text: text[0] + text[2:],
    "text of 16 characters": lambda text: text[:18],
    "text of 16 characters, filled up": lambda text: text[:18] + FILLING[16:],
    "text of no characters, filled up": lambda text: text[:2] + FILLING,
}


def main() -> int:
    """Run the mutants, print, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a folder for mutants.json and mutants.md")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants")
    args = parser.parse_args()
    from kvseal.cli.execution import prepare_process

    prepare_process()
    os.environ["LMCACHE_LOG_LEVEL"] = "ERROR"  # it warns of every cell
    started = time.monotonic()
    with Trial() as trial:
        unchanged = trial.run()
        manifest = trial.manifest()
        names = [*paths_of(manifest), *TEXTS]
        mutants = []
        for name in [name for name in names if not args.only or name in args.only]:
            with text_of(TEXTS[name]) if name in TEXTS else left_out(name):
                found = trial.run()
            mutants.append({"mutant": name, **verdict_on(name, found, manifest), **found})
    survived = [entry["mutant"] for entry in mutants if entry["outcome"] == "SURVIVED"]
    summary = (
        f"{len(mutants)} mutants, {len(trial.rows)} rows, {time.monotonic() - started:.0f} s. "
        f"Unchanged: {len(unchanged['red'])} rows red, checker says {unchanged['verdict']}. "
        f"Survived without a proof: {', '.join(survived) or 'none'}."
    )
    print(shown := f"{markdown(mutants)}\n\n{summary}\n")
    if args.out is not None:
        document = {
            "schema": "kvseal.manifest-mutants.v1",
            "versions": {name: version(name) for name in ("lmcache", "torch")},
            "rows": trial.rows,
            "unchanged": unchanged,
            "mutants": mutants,
        }
        args.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=2) + "\n"
        (args.out / "mutants.json").write_text(text, encoding="utf-8")
        (args.out / "mutants.md").write_text(shown, encoding="utf-8")
    return 0 if unchanged["verdict"] == "PASS" and not survived else 1


def paths_of(manifest: Manifest) -> list[str]:
    """Return what the table changes, and every leaf of a real manifest, as dotted paths."""
    from kvseal.workload.matrix.fields import FIELDS

    def leaves(value: Mapping[str, Any], at: str) -> Iterator[str]:
        for name, item in value.items():
            if isinstance(item, dict):
                yield from leaves(item, f"{at}{name}.")
            else:
                yield f"{at}{name}"

    return list(dict.fromkeys([*FIELDS, *leaves(manifest, "")]))


@contextmanager
def left_out(path: str) -> Iterator[None]:
    """Leave `path` out of the canonical bytes of every manifest, and so out of its digest."""
    from kvseal.canonical import canonical_bytes
    from kvseal.identity import TransformManifest

    def without(manifest: TransformManifest) -> bytes:
        value = manifest.to_json()
        *outer, last = path.split(".")
        place: Any = value
        for name in outer:
            place = place[name] if place else None
        if place:  # what has no query has none of its fields
            place.pop(last, None)
        return canonical_bytes(value)

    original = vars(TransformManifest)["canonical_bytes"]
    TransformManifest.canonical_bytes = property(without)
    try:
        yield
    finally:
        TransformManifest.canonical_bytes = original


@contextmanager
def text_of(change: Callable[[str], str]) -> Iterator[None]:
    """Change the text of every variant."""
    from kvseal.identity import variant

    original = variant.variant_text
    variant.variant_text = lambda scope, digest: change(original(scope, digest))
    try:
        yield
    finally:
        variant.variant_text = original


class Trial:
    """The rows that exist in the backend `process`, on artifacts made once; a context manager."""

    def __init__(self) -> None:
        from synthetic_kv import SyntheticEngine

        from kvseal.drivers.matrix.artifacts import Workshop
        from kvseal.drivers.matrix.prompts import Prompts
        from kvseal.workload.matrix import ARTIFACTS, CASES

        self.rows = [c.name for c in CASES if "process" in c.backends and "none" in c.afters]
        self._spec: Any = SimpleNamespace(
            matrix=SimpleNamespace(
                backends=("process",),
                restarts=(),
                identity="variant",
                cases=(),
                mixed_requests=0,
                drop_percent=DROP_PERCENT,
                window_tokens=WINDOW,
                kernel_tokens=KERNEL,
            ),
            lmcache=SimpleNamespace(chunk_size_tokens=CHUNK),
            sha256=lambda: hashlib.sha256(b"manifest mutants").hexdigest(),
        )
        model: Any = SimpleNamespace(name="synthetic", revision="1")
        engine: Any = SyntheticEngine(CHUNK, SEED)
        draw = random.Random(SEED)  # noqa: S311 - prompts, no secret
        first, second = ([draw.randrange(32000) for _ in range(TOKENS)] for _ in "ab")
        work = Workshop(self._spec.matrix, model, engine, engine.rope, lambda *_: None)
        self._made = work.make(first, second, ARTIFACTS)
        self._prompts = Prompts(self._made, second[::-1], first[TOKENS // CHUNK * CHUNK :], CHUNK)
        self._surface = emptied_surface(self._spec, model, self._made["local-a"])

    def __enter__(self) -> Trial:
        self._surface.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._surface.__exit__(*error)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest that the rows of the fields are about."""
        manifest: dict[str, Any] = self._made["local-a"].sealed().manifest.to_json()
        return manifest

    def run(self) -> dict[str, Any]:
        """Run every row; return the verdict, the red rows, and what else the checker says."""
        from kvseal.checkers.matrix import judge
        from kvseal.drivers.matrix.cells import Rounds, run_cells
        from kvseal.drivers.matrix.run import artifact_event
        from kvseal.records import matrix_builders as builders
        from kvseal.records.history import HistoryWriter, parse_history
        from kvseal.records.matrix import TABLE

        lines: list[str] = []
        sink: Any = SimpleNamespace(append=lines.append)
        history = HistoryWriter(sink, TABLE)
        started = builders.run_started(driver="matrix", spec_sha256=self._spec.sha256(), host={})
        history.append(started)
        fields = ("kvseal_version", "vllm_version", "torch_version", "lmcache_version")
        nothing = dict.fromkeys((*fields, "lmcache_revision", "model_revision"), "")
        history.append(builders.environment(**nothing, details={}))
        for made in self._made.values():
            history.append(artifact_event(made, sealed=True))
        with redirect_stderr(io.StringIO()):  # how far it has come
            run_cells(self._surface, "none", Rounds(self._made, self._prompts, history, True))
        history.append(builders.run_finished())
        written = parse_history("".join(f"{line}\n" for line in lines).encode(), table=TABLE)
        result = judge(self._spec, written)
        outcomes = {row["case"]: c["outcome"] for row in result["rows"] for c in row["cells"]}
        reasons = {r["code"] for r in result["reasons"] if r["verdict"] == "INCONCLUSIVE"}
        return {
            "verdict": result["verdict"],
            "red": {n: o for n, o in outcomes.items() if o not in ("passed", "inconclusive")},
            "open": sorted(reasons),
        }


def emptied_surface(spec: Any, model: Any, like: Any) -> Any:
    """Return the matrix's surface of LMCache's engine, emptied after a cell and not restarted."""
    from kvseal.drivers.matrix.in_process import InProcessSurface

    class Emptied(InProcessSurface):
        def empty(self) -> None:
            engine = self._engine._engine
            engine.clear()
            left = engine.storage_manager.storage_backends["LocalCPUBackend"].get_keys()
            if left:
                super().empty()

    return Emptied(spec, model, like)


def verdict_on(name: str, found: Mapping[str, Any], manifest: Manifest) -> dict[str, str]:
    """Say what became of a mutant: caught by rows, the same identity by its proof, or survived."""
    from manifest_proofs import SAME

    if found["red"]:
        return {"outcome": "caught", "why": ""}
    if name in SAME and SAME[name][1](manifest):
        return {"outcome": "same identity", "why": SAME[name][0]}
    return {"outcome": "SURVIVED", "why": "no row changes it alone"}


def markdown(mutants: Sequence[Mapping[str, Any]]) -> str:
    """Return the table: what was left out, what became of it, which rows turned red."""
    lines = ["| left out, or changed | outcome | red rows |", "| --- | --- | --- |"]
    for entry in mutants:
        red = list(entry["red"])
        named = ", ".join(red[:4]) + (f" and {len(red) - 4} more" if len(red) > 4 else "")
        lines.append(f"| {entry['mutant']} | {entry['outcome']} | {named or entry['why']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
