# SPDX-License-Identifier: Apache-2.0
"""Makes the history of a matrix run in which all is as it must be, for tests to use or to damage.

An ideal cache stands behind it: it gives everyone what he names and nobody
anything else. Events come from the program's own builders; token IDs and
digests are made up. Loaded by path, as the tests are no package.
"""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

from kvseal.canonical import digest, sha256_hex, token_ids_sha256
from kvseal.checkers.matrix import judge
from kvseal.identity.variant import MARK, variant_text
from kvseal.records import matrix_builders as new
from kvseal.records.history import Event, History, HistoryWriter, parse_history
from kvseal.records.matrix import TABLE
from kvseal.spec.runspec import MatrixSpec
from kvseal.store import create_run_folder, write_json, write_manifest, write_text
from kvseal.workload.matrix import ARTIFACTS, Act, Ask, Case, Required, chosen, required_here
from kvseal.workload.matrix.case import BEHIND

CHUNK = 64
TAIL = [7, 7, 7]
SOURCE, KEPT, QUARTER, CHAINED = range(1000, 1320), range(2000, 2192), range(3000, 3128), range(128)
FIXED = range(4000, 4192)
TOKENS = {
    "ordinary-a": SOURCE, "snapkv-a-query-b": range(5000, 5192), "snapkv-a-quarter": QUARTER,
    "fixed-a": FIXED, "fixed-b": FIXED, "chained-a": CHAINED,
}  # fmt: skip
"""The others stand under the tokens that snapkv-a keeps."""
TOPICS = ("mixed-0", "mixed-1")


@dataclasses.dataclass(frozen=True)
class MatrixSection:
    """The section `matrix` of a run spec, as far as the checker reads it."""

    backends: tuple[str, ...] = ("process", "mp", "native", "fs")
    restarts: tuple[str, ...] = ("engine", "server", "both")
    cases: tuple[str, ...] = ()
    identity: str = "variant"
    mixed_requests: int = 12


@dataclasses.dataclass(frozen=True)
class LmcacheSection:
    """The section `lmcache`, as far as the checker reads it."""

    chunk_size_tokens: int = CHUNK


@dataclasses.dataclass(frozen=True)
class Spec:
    """A run spec, as far as the checker reads it."""

    matrix: MatrixSection = MatrixSection()
    lmcache: LmcacheSection = LmcacheSection()

    def sha256(self) -> str:
        """A digest of what there is."""
        return digest(dataclasses.asdict(self))


def make_spec(**changes: Any) -> Spec:
    """A spec; `changes` are fields of `matrix`."""
    return Spec(MatrixSection(**changes))


def tokens_of(name: str) -> list[int]:
    """The token IDs under which an artifact stands."""
    if name in TOPICS:
        return list(range(6000 + 500 * TOPICS.index(name), 6192 + 500 * TOPICS.index(name)))
    return list(TOKENS.get(name, KEPT))


def prompt_of(name: str, suffix_chunks: int = 0) -> list[int]:
    """What a request for an artifact sends."""
    return [*tokens_of(name), *range(9000, 9000 + suffix_chunks * CHUNK), *TAIL]


def control_tokens(prompt: list[int]) -> list[int]:
    """What the control answers: something of this prompt alone."""
    return [1, *digest(prompt).encode()[:7]]


def witness_tokens(name: str, prompt: list[int]) -> list[int]:
    """What the witness answers: something of this artifact and prompt."""
    return [2, *digest([*name.encode(), *prompt]).encode()[:7]]


def true_tokens(name: str, prompt: list[int]) -> list[int]:
    """What a hit on an artifact answers."""
    ordinary = name in ARTIFACTS and ARTIFACTS[name].kind == "ordinary"
    return control_tokens(prompt) if ordinary else witness_tokens(name, prompt)


def payload_of(name: str) -> str:
    """The digest of an artifact's KV."""
    return sha256_hex(name.encode())


def manifest_of(name: str) -> dict[str, Any]:
    """A manifest, as far as the checker reads it."""
    return {
        "algorithm": {"name": name},
        "logical_tokens_sha256": token_ids_sha256(tokens_of(name)),
        "scope": {"kind": "query-scoped"},
    }


def shared_variant(name: str) -> str:
    """The variant of an artifact that more than one request may have."""
    if name in ARTIFACTS and (ARTIFACTS[name].kind == "ordinary" or ARTIFACTS[name].local):
        return ""
    return variant_text("query-scoped", digest(manifest_of(name)))


def local_variant(name: str, *nonce: str) -> str:
    """The variant of a request-local artifact, another one for each nonce."""
    return variant_text("request-local", sha256_hex("/".join((name, *nonce)).encode()))


class Cell:
    """One cell of an ideal run."""

    def __init__(self, spec: Spec, case: Case, backend: str, after: str) -> None:
        self.case, self.backend, self.after = case, backend, after
        self.stock = spec.matrix.identity == "none"
        self.place = {"case": case.name, "backend": backend, "after": after}
        self.salt = f"{backend}-{after}-{case.name}"
        if case.lie == "long-salt":
            self.salt = self.salt.ljust(128, "x")

    def variant(self, name: str) -> str:
        """What an artifact is called in this cell."""
        if self.stock:
            return ""
        if ARTIFACTS[name].local:
            return local_variant(name, *self.place.values())
        return shared_variant(name)

    def begin(self) -> list[dict[str, Any]]:
        """The events before the restart."""
        stores = [
            new.stored(
                **self.place,
                artifact=name,
                variant=self.variant(name),
                cache_salt=self.salt,
                tokens=0 if number in self.case.refused_stores else len(tokens_of(name)),
                refusal="it lies" if number in self.case.refused_stores else None,
            )
            for number, name in enumerate(self.case.store)
        ]
        return [new.cell(**self.place, cache_salt=self.salt), *stores, *self.steps(early=True)]

    def steps(self, *, early: bool) -> list[dict[str, Any]]:
        """The steps before the restart, or behind it."""
        return [
            self.act(number, step) if isinstance(step, Act) else self.ask(number, step)
            for number, step in enumerate(self.case.steps)
            if step.before_restart == early
        ]

    def act(self, number: int, step: Act) -> dict[str, Any]:
        """What an act shows."""
        value = step.expected if step.required is Required.SEEN else "refused: not for others"
        return new.observed(**self.place, step=number, what=step.kind, value=value)

    def ask(self, number: int, step: Ask) -> dict[str, Any]:
        """What comes of a request."""
        name, prompt = step.prompt, prompt_of(step.prompt, step.suffix_chunks)
        required = required_here(
            step, local=ARTIFACTS[name].local, backend=self.backend, after=self.after
        )
        whole = len(tokens_of(name)) + step.descendants * CHUNK
        hit, refused = required is Required.HIT, required is Required.REFUSED
        process = self.backend == "process"
        answer = true_tokens(name, prompt) if hit else control_tokens(prompt)
        count = None if refused else whole if hit else 0
        return new.asked(
            **self.place,
            step=number,
            artifact=name,
            prompt=prompt,
            artifact_tokens=whole,
            variant=self.named(step, required),
            cache_salt=self.tenant(step),
            refusal="not that name" if refused else None,
            output_token_ids=None if process or refused else answer,
            payload_sha256=payload_of(name) if process and hit else None,
            hit_tokens_vllm=None if process else count,
            hit_tokens_server=count,
        )

    def named(self, step: Ask, required: Required) -> str:
        """The variant that a request names."""
        how, _, what = step.identity.partition(":")
        if self.stock or how == "ordinary":
            return ""
        if how == "text":
            return what
        if how == "artifact":
            return self.variant(what)
        if how == "field":
            return local_variant(step.prompt, *self.place.values(), what)
        if how == "index" and required is not Required.HIT:
            return ""
        return self.variant(step.prompt)

    def tenant(self, step: Ask) -> str:
        """The salt of a request."""
        return {
            "cell": self.salt,
            "other": f"{self.salt}-other",
            "variant": self.variant(step.prompt) or "without-identity",
            "mark": MARK + self.variant(step.prompt),
        }[step.salt]


def passing_events(spec: Spec) -> list[dict[str, Any]]:
    """The events of a run of `spec` in which everything went as it must."""
    events = [*_head(spec), *_mixed(spec)]
    for backend in spec.matrix.backends:
        if backend != "process":
            events.append(_engines(backend, "main"))
        for after in ("none", *spec.matrix.restarts):
            cells = [
                Cell(spec, case, backend, after)
                for case in chosen(spec.matrix.cases)
                if case.runs_in(backend, after)
            ]
            # One process knows no tenants, so its cells come one after the other.
            for batch in [[cell] for cell in cells] if backend == "process" else [cells]:
                events += [event for cell in batch for event in cell.begin()]
                if backend in BEHIND:
                    events.append(new.emptied(backend=backend, objects_before=9, objects_after=0))
                if after != "none":
                    events.append(new.restarted(backend=backend, what=after))
                events += [event for cell in batch for event in cell.steps(early=False)]
    return [*events, new.run_finished()]


def _engines(backend: str, engine: str) -> dict[str, Any]:
    return new.engines_started(
        backend=backend, after="none", engine=engine, vllm={"url": "u"}, lmcache={}
    )


def _head(spec: Spec) -> list[dict[str, Any]]:
    events = [
        new.run_started(spec_sha256=spec.sha256(), host={"system": "Linux"}, driver="matrix"),
        new.environment(
            kvseal_version="0.1.0",
            vllm_version="0.28.0",
            lmcache_version="0.5.4",
            torch_version="2.13.0+cpu",
            lmcache_revision=None,
            model_revision="0.1.2",
            details={"cpu": "test <b>model</b>"},
        ),
        _engines("mp", "control"),
    ]
    names = [*ARTIFACTS, *(TOPICS if spec.matrix.mixed_requests else ())]
    for name in names:
        variant = "" if spec.matrix.identity == "none" else shared_variant(name)
        manifest = manifest_of(name) if variant else None
        events.append(
            new.artifact(
                name=name,
                kind=ARTIFACTS[name].kind if name in ARTIFACTS else "snapkv",
                token_ids=tokens_of(name),
                source_tokens=len(SOURCE),
                variant=variant,
                manifest=manifest,
                manifest_sha256=digest(manifest) if manifest else None,
                payload_sha256=payload_of(name),
            )
        )
    prompts = [(name, prompt_of(name, suffix)) for name in names for suffix in (0, 2)]
    asked = {tuple(prompt): prompt for _, prompt in prompts}
    for prompt in [*asked.values(), list(SOURCE)]:
        events.append(new.control(prompt=prompt, output_token_ids=control_tokens(prompt), text="t"))
    for name, prompt in prompts:
        if name not in ARTIFACTS or ARTIFACTS[name].kind != "ordinary":
            tokens = witness_tokens(name, prompt)
            events.append(
                new.witness(artifact=name, prompt=prompt, output_token_ids=tokens, top2_margin=0.5)
            )
    return events


def _mixed(spec: Spec) -> list[dict[str, Any]]:
    if not spec.matrix.mixed_requests:
        return []
    events = [_engines("mp", "main"), _engines("mp", "plain")]
    stock = spec.matrix.identity == "none"
    for index in range(spec.matrix.mixed_requests):
        name = TOPICS[index // 4 % len(TOPICS)]
        literal = prompt_of(name)
        kind, required, count = (
            ("source", "any", len(SOURCE)),
            ("exact", "hit", len(tokens_of(name))),
            ("literal", "any", len(tokens_of(name)) if index > 6 else 0),
            ("other", "miss", 0),
        )[index % 4]
        prompt = list(SOURCE) if kind == "source" else literal
        named = {"exact": shared_variant(name), "other": local_variant(name)}.get(kind, "")
        hit = kind == "exact"
        events.append(
            new.mixed(
                index=index,
                engine="plain" if index % 2 == 0 else "snapkv",
                kind=kind,
                artifact=name,
                required=required,
                prompt=prompt,
                artifact_tokens=len(tokens_of(name)),
                variant="" if stock else named,
                cache_salt="mixed-a",
                output_token_ids=witness_tokens(name, prompt) if hit else control_tokens(prompt),
                hit_tokens_vllm=count,
            )
        )
    return events


def history(events: list[dict[str, Any]], truncated: bool = False) -> History:
    """`events` as a history."""
    return History(
        tuple(
            Event(
                seq,
                f"2026-11-30T12:{seq // 60 % 60:02}:{seq % 60:02}.000Z",
                event["event"],
                {key: value for key, value in event.items() if key != "event"},
            )
            for seq, event in enumerate(events)
        ),
        truncated,
    )


class Lines:
    """A sink in memory, as a file on disk is slow line by line."""

    def __init__(self) -> None:
        self.text = ""

    def append(self, line: str) -> None:
        """Keep one line."""
        self.text += line + "\n"


def write_history(path: Path, events: list[dict[str, Any]]) -> History:
    """Write `events` as the program's writer does and read them back."""
    lines = Lines()
    writer = HistoryWriter(lines, TABLE)
    for event in events:
        writer.append(event)
    write_text(path, lines.text)
    return parse_history(path.read_bytes(), str(path), TABLE)


def judged(spec: Spec, events: list[dict[str, Any]], truncated: bool = False) -> dict[str, Any]:
    """The result of `events`."""
    return judge(spec, history(events, truncated))


def find(events: list[dict[str, Any]], name: str, /, **fields: Any) -> dict[str, Any]:
    """The first event of this name with these fields."""
    return next(
        event
        for event in events
        if event["event"] == name and all(event[key] == value for key, value in fields.items())
    )


def matrix_spec(**changes: Any) -> MatrixSpec:
    """A whole run spec; `changes` are fields of `matrix`."""
    of_a_run = runpy.run_path(str(Path(__file__).parents[2] / "records" / "builder.py"))
    document = of_a_run["spec_json"](lmcache={"chunk_size_tokens": CHUNK})
    del document["workload"], document["snapkv"]
    document["workflow"] = MatrixSpec.WORKFLOW
    document["matrix"] = {
        "backends": ["mp"], "restarts": [], "cases": [], "identity": "variant",
        "mixed_requests": 12, "prompt_tokens": 321, "new_tokens": 8, "seed": 0, "drop_percent": 50,
        "window_tokens": 32, "kernel_tokens": 5,
    } | changes  # fmt: skip
    return MatrixSpec.from_json(document)


PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old < 1\n+new\n"


def run_folder(path: Path, events: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """A whole run folder at `path`, as the verb leaves it; `changes` as for `matrix_spec`."""
    spec = matrix_spec(**changes)
    create_run_folder(path)
    write_json(path / "spec.json", spec.to_json())
    kept = write_history(path / "history.jsonl", passing_events(spec) if events is None else events)
    write_json(path / "result.json", judge(spec, kept))
    codemod = {
        "name": "lmcache_key_variant", "summary": "keys name a variant", "distribution": "lmcache",
        "version": "0.5.4", "source": "kvseal", "files": [{"path": "x.py"}],
    }  # fmt: skip
    record = {"codemods": [codemod], "diff_sha256": sha256_hex(PATCH.encode())}
    write_json(path / "patches.json", record)
    write_text(path / "patches.diff", PATCH)
    write_text(path / "logs" / "vllm-mp-1.log", "ready\n")
    write_manifest(path)
    return path
