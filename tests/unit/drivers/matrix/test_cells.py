# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E402
"""The loop over cells, on a cache that is a dictionary: an ideal one, and ones that leak.

What the driver writes is judged by the checker, so that the two agree about
what a case is. Engines are tests/matrix's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kvseal.checkers.matrix import judge
from kvseal.drivers.matrix.artifacts import Made
from kvseal.drivers.matrix.cells import Rounds, run_cells
from kvseal.drivers.matrix.in_process import payload_digest
from kvseal.drivers.matrix.prompts import Prompts
from kvseal.drivers.matrix.run import artifact_event, backends_with_cases
from kvseal.drivers.matrix.surface import Answer, Stored
from kvseal.errors import KvsealError, OptionError, StoreError
from kvseal.identity import (
    Algorithm,
    Format,
    KVArtifact,
    Query,
    Rope,
    Scope,
    TensorParallel,
    seal_legacy,
)
from kvseal.identity.scope import QUERY_SCOPED, request_local
from kvseal.identity.seal import seal
from kvseal.identity.variant import RESERVED, parse_variant
from kvseal.records import matrix_builders as builders
from kvseal.records.history import HistoryWriter, read_history
from kvseal.records.matrix import TABLE
from kvseal.store import LineFile
from kvseal.workload.matrix import ARTIFACTS, BACKENDS, Act, Ask, Required, chosen
from kvseal.workload.matrix.case import BEHIND, PROCESS

CHUNK = 4
SCALING = (("interleaved", "false"), ("max_position_embeddings", "64"), ("rotary_dim", "2"))
FORMAT = Format(
    "toy",
    "0" * 40,
    "toy",
    "float32",
    Rope("default", "10000", SCALING),
    1,
    2,
    1,
    TensorParallel(1, 1),
)
SOURCE = tuple(range(100, 120))
KEPT = (0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 18, 19)
TAIL = [7]


@dataclasses.dataclass(frozen=True)
class Section:
    """The parts of a run spec that the checker reads."""

    backends: tuple[str, ...] = BACKENDS
    restarts: tuple[str, ...] = ("engine", "server", "both")
    cases: tuple[str, ...] = ()
    identity: str = "variant"
    mixed_requests: int = 0
    chunk_size_tokens: int = CHUNK


@dataclasses.dataclass(frozen=True)
class Spec:
    """A run spec, as far as the checker reads it."""

    matrix: Section = Section()
    lmcache: Section = Section()

    def sha256(self) -> str:
        """Any digest will do."""
        return "a" * 64


def artifact(name: str, number: int) -> Made:
    kind = ARTIFACTS[name]
    positions = KEPT[:8] if name.endswith(("quarter", "chained-a")) else KEPT
    if name.endswith("query-b"):
        positions = (*KEPT[:3], 4, *KEPT[4:])
    source = SOURCE
    ids = SOURCE if name == "ordinary-a" else tuple(SOURCE[place] for place in positions)
    if name == "fixed-b":  # other tokens where nothing is kept
        source = tuple(
            token if place in KEPT else token + 500 for place, token in enumerate(SOURCE)
        )
    shape = (1, len(ids), 1, 2)
    keys, values = torch.full(shape, float(number)), torch.full(shape, number + 0.5)

    def sealed() -> KVArtifact:
        if kind.kind == "legacy":
            packed = torch.cat([keys, values], dim=-1).reshape(1, 1, len(ids), 4)
            return seal_legacy(
                packed, ids, source_token_ids=source, format=FORMAT, implementation="toy"
            )
        query = Query(("b" if name.endswith("query-b") else "a") * 64, 2)
        return seal(
            algorithm=Algorithm("fixed" if "fixed" in name else "snapkv", 1, "toy"),
            parameters={
                "chunk_tokens": CHUNK,
                "drop_percent": 75 if name.endswith("quarter") else 50,
                "kernel_tokens": 1,
                "softmax_scale": "1",
                "window_tokens": 2,
            },
            source_token_ids=source,
            retained_positions=positions,
            granularity="all",
            logical_token_ids=ids,
            query=query,
            format=FORMAT,
            scope=request_local() if kind.local else Scope(QUERY_SCOPED, query.digest),
            keys=keys,
            values=values,
        )

    return Made(name, keys, values, ids, source, "", None if kind.kind == "ordinary" else sealed)


class ToyCache:
    """A cache that keeps names apart, in the way of one backend; `leak` is how it does not."""

    def __init__(self, backend: str, made: dict[str, Made], leak: str = "") -> None:
        self.backend = backend
        self.together = backend != PROCESS
        self._made = made
        self._leak = leak
        self.restarts: list[str] = []
        self._entries: dict[tuple[str, str, tuple[int, ...]], str] = {}
        self._index: dict[tuple[str, str], str] = {}

    def _key(self, salt: str, variant: str, ids: Sequence[int]) -> tuple[str, str, tuple[int, ...]]:
        if self._leak == "variant":
            variant = ""
        if self._leak == "salt" or self.backend == PROCESS:
            salt = ""
        return salt, variant, tuple(ids)

    def store(self, made: Made, artifact: KVArtifact | None, cache_salt: str) -> int:
        """Store under a name that is free."""
        variant = "" if artifact is None else artifact.variant
        key = self._key(cache_salt, variant, made.token_ids)
        if key in self._entries or (len(cache_salt) == 128 and self.backend in BEHIND):
            raise StoreError("nothing was stored")
        self._entries[key] = made.name
        return len(made.token_ids)

    def settle(self) -> tuple[int, int] | None:
        """With a disk behind, what is request-local is gone with the memory."""
        if self.backend not in BEHIND:
            return None
        self._entries = {k: v for k, v in self._entries.items() if not k[1].startswith("r")}
        return 1, 0

    def ask(self, token_ids: Sequence[int], *, variant: str, cache_salt: str) -> Answer:
        """The longest prefix of whole chunks decides."""
        if variant and self._leak != "texts":
            try:
                parse_variant(variant)
            except KvsealError as error:
                return Answer(refusal=str(error))
            if variant[0] not in "rq":
                return Answer(refusal="scope not taken")
        if RESERVED in cache_salt:
            return Answer(refusal="the salt holds the mark")
        for tokens in range(len(token_ids) // CHUNK * CHUNK, 0, -CHUNK):
            name = self._entries.get(self._key(cache_salt, variant, token_ids[:tokens]))
            if name is not None:
                return self._hit(name, token_ids, tokens, variant, cache_salt)
        if not variant and self.backend != PROCESS:
            whole = len(token_ids) // CHUNK * CHUNK
            self._entries[self._key(cache_salt, "", token_ids[:whole])] = "computed"
        return self._answer("computed", token_ids, 0)

    def _hit(self, name: str, ids: Sequence[int], tokens: int, variant: str, salt: str) -> Answer:
        whole = len(ids) // CHUNK * CHUNK
        if self._leak != "descendants":
            self._entries[self._key(salt, variant, ids[:whole])] = name
        else:
            self._entries[self._key(salt, "", ids[:whole])] = name
        return self._answer(name, ids, tokens)

    def _answer(self, name: str, ids: Sequence[int], tokens: int) -> Answer:
        if self.backend == PROCESS:
            made = self._made.get(name)
            digest = payload_digest(made.keys, made.values) if made and tokens else None
            return Answer(hit_tokens_server=tokens, payload_sha256=digest)
        return Answer(answer(name, ids), None, tokens, tokens)

    def act(self, step: Act, stored: Stored, cache_salt: str) -> str:
        """What the real surfaces do, in a dictionary."""
        recipe = stored.identity.manifest.recipe_digest
        if step.kind == "publish":
            if stored.variant.startswith("r"):
                raise StoreError("a request-local artifact is not listed")
            self._index[(cache_salt, recipe)] = stored.variant
            return "1 variant"
        if step.kind in ("end-lease", "damage") and self._leak != step.kind:
            self._entries = {k: v for k, v in self._entries.items() if k[1] != stored.variant}
            return step.expected
        if step.kind == "forge":
            self._index[(cache_salt, recipe)] = "forged"
            return "forged"
        if step.kind == "files":
            return "absent" if stored.variant.startswith("r") else "present"
        if step.kind.startswith("look-up"):
            return (
                f"{len([1 for key in self._index if key == (cache_salt + 'x', recipe)])} variants"
            )
        if step.required is Required.REFUSED:
            raise StoreError(f"{step.kind} is refused")
        return step.expected

    def found_in_index(self, stored: Stored, cache_salt: str) -> str:
        """The one variant of a recipe."""
        found = self._index.get((cache_salt, stored.identity.manifest.recipe_digest), "")
        if found == "forged":
            raise StoreError("forged")
        return found

    def restart(self, what: str) -> None:
        """Memory goes with the server, in one process with anything."""
        self.restarts.append(what)
        if self.backend == PROCESS or (what != "engine" and not BEHIND.get(self.backend, False)):
            self._entries.clear()

    def empty(self) -> None:
        """Forget everything."""
        self._entries.clear()


def answer(name: str, ids: Sequence[int]) -> list[int]:
    """What an engine would say: something of the KV it has and of the prompt."""
    ordinary = name == "computed" or ARTIFACTS[name].kind == "ordinary"
    number = 0 if ordinary else 1 + list(ARTIFACTS).index(name.replace("-again", ""))
    return [number, sum(ids) % 1000]


def judged(folder: Path, leak: str = "", **section: Any) -> dict[str, Any]:
    """Run every cell of every backend on a toy cache and judge the history."""
    spec = Spec(Section(**section))
    needed = {name for case in chosen(spec.matrix.cases) for name in case.artifacts}
    made = {name: artifact(name, number) for number, name in enumerate(ARTIFACTS) if name in needed}
    prompts = Prompts(made, list(range(900, 920)), TAIL, CHUNK)
    with LineFile(folder / "history.jsonl") as lines:
        history = HistoryWriter(lines, TABLE)
        write(history, spec, made, prompts, leak)
    return judge(spec, read_history(folder / "history.jsonl", TABLE))


def write(
    history: HistoryWriter, spec: Spec, made: dict[str, Made], prompts: Prompts, leak: str
) -> None:
    history.append(builders.run_started(driver="matrix", spec_sha256=spec.sha256(), host={}))
    history.append(
        builders.environment(
            kvseal_version="0",
            vllm_version="0",
            lmcache_version="0",
            torch_version="0",
            lmcache_revision=None,
            model_revision=None,
            details={},
        )
    )
    for backend, engine in [("mp", "control"), *((name, "main") for name in spec.matrix.backends)]:
        history.append(
            builders.engines_started(
                backend=backend, after="none", engine=engine, vllm={}, lmcache={}
            )
        )
    for one in made.values():
        history.append(artifact_event(one, sealed=spec.matrix.identity == "variant"))
        for chunks in (0, 2):
            prompt = [*one.token_ids, *prompts.rest(chunks)]
            history.append(
                builders.control(
                    prompt=prompt, output_token_ids=answer("computed", prompt), text=""
                )
            )
            if one.seal is not None:
                history.append(
                    builders.witness(
                        artifact=one.name,
                        prompt=prompt,
                        output_token_ids=answer(one.name, prompt),
                        top2_margin=1.0,
                    )
                )
    rounds = Rounds(
        made, prompts, history, spec.matrix.identity == "variant", chosen(spec.matrix.cases)
    )
    for backend in spec.matrix.backends:
        surface = ToyCache(backend, made, leak)
        for after in ("none", *spec.matrix.restarts):
            run_cells(surface, after, rounds)
    history.append(builders.run_finished())


def test_an_ideal_cache_passes_every_cell(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert result["reasons"] == []
    assert result["verdict"] == "PASS"
    assert result["counts"]["cells"] == result["counts"]["passed"] > 300


@pytest.mark.parametrize(
    ("leak", "row", "backend"),
    [
        ("variant", "literal-retained-tokens", "mp"),
        ("salt", "other-tenant", "mp"),
        ("texts", "malformed-variant", "mp"),
        ("descendants", "descendant-ordinary", "mp"),
        ("damage", "damaged-object", "fs"),
    ],
)
def test_a_leak_turns_its_row_red(tmp_path: Path, leak: str, row: str, backend: str) -> None:
    result = judged(tmp_path, leak, backends=(backend,), restarts=())
    red = {r["case"] for r in result["rows"] if any(c["outcome"] != "passed" for c in r["cells"])}
    assert result["verdict"] == "FAIL"
    assert row in red


def test_a_cache_without_identity_shows_the_disease(tmp_path: Path) -> None:
    result = judged(tmp_path, "variant", backends=("mp",), restarts=(), identity="none")
    assert result["verdict"] == "FAIL"
    assert result["counts"]["unsafe_hits"] > 10


def test_chosen_cases_alone_are_run_from_their_artifacts_alone(tmp_path: Path) -> None:
    names = ("same-transform", "other-query", "legacy-other", "chained-as-parent")
    result = judged(tmp_path, backends=("process", "mp"), restarts=("both",), cases=names)
    assert (result["verdict"], result["reasons"]) == ("PASS", [])
    assert {row["case"] for row in result["rows"] if row["cells"]} == set(names)
    assert result["counts"]["cells"] == len(names) * 3  # a process has no server to restart


def test_engines_start_only_where_a_chosen_case_exists() -> None:
    files = chosen(["request-local-files"])
    assert backends_with_cases(("process", "mp", "fs"), ("both",), files) == ["fs"]
    with pytest.raises(OptionError, match="none of the chosen cases") as caught:
        backends_with_cases(("process", "mp"), ("both",), files)
    assert caught.value.value == "request-local-files"


def test_a_restart_without_a_case_is_not_made(tmp_path: Path) -> None:
    surface = ToyCache("mp", {})
    with LineFile(tmp_path / "history.jsonl") as lines:
        rounds = Rounds({}, Prompts({}, [], TAIL, CHUNK), HistoryWriter(lines, TABLE), True, ())
        run_cells(surface, "engine", rounds)
    assert surface.restarts == []
    assert (tmp_path / "history.jsonl").read_text() == ""


def test_every_ask_of_the_table_has_a_prompt() -> None:
    from kvseal.workload.matrix import CASES

    for case in CASES:
        for step in case.steps:
            name = step.prompt if isinstance(step, Ask) else step.artifact
            assert name in ARTIFACTS, case.name
