# SPDX-License-Identifier: Apache-2.0
"""The matrix from run spec to last history line.

The first engines make the artifacts, and a third party without a cache says
what the answers must be. Then backend after backend runs the table, each on
engines of its own, and two engines on one server are asked at the same time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from kvseal.drivers.environment import record_environment
from kvseal.drivers.matrix.artifacts import Made, Topic, Workshop
from kvseal.drivers.matrix.cells import Rounds, run_cells
from kvseal.drivers.matrix.in_process import InProcessSurface, payload_digest
from kvseal.drivers.matrix.lab import Bench, Lab, lone_engine
from kvseal.drivers.matrix.mixed import PlainClient, SnapkvClient, requests, run_mixed
from kvseal.drivers.matrix.prompts import Prompts
from kvseal.drivers.matrix.served import ServedSurface
from kvseal.drivers.matrix.surface import Surface
from kvseal.drivers.matrix.truth import Truth, record_truth, telling
from kvseal.drivers.recording import Recording
from kvseal.drivers.run import ModelTokenizer, load_witness
from kvseal.drivers.serving import STORE_TIMEOUT_SECONDS, prefill
from kvseal.engines.completions import CompletionClient
from kvseal.errors import EvidenceError, KvsealError, OptionError
from kvseal.host.facts import HostFacts
from kvseal.models.directory import ModelDirectory
from kvseal.models.resolve import resolve_model
from kvseal.process import Progress
from kvseal.records import matrix_builders as builders
from kvseal.records.history import HistoryWriter
from kvseal.spec.options import VARIANT
from kvseal.spec.runspec import MatrixSpec
from kvseal.spec.sections import Matrix
from kvseal.workload.matrix import ARTIFACTS, Case, chosen
from kvseal.workload.matrix.case import MP, NONE, PROCESS
from kvseal.workload.registry import generate_prompts

TOPICS, CANDIDATES = 6, 18
"""Source prompts of the mixed traffic, and how many to choose them from."""
TASK = "needle"


def run_matrix(spec: MatrixSpec, recording: Recording, host: HostFacts) -> None:
    """Run the matrix of `spec`, writing all that happens to `recording`.

    Raises:
        KvsealError: whatever made going on impossible; the engines are gone then.
    """
    history, matrix = recording.history, spec.matrix
    cases = chosen(matrix.cases)
    backends = backends_with_cases(matrix.backends, matrix.restarts, cases)
    with Progress("preparing model and prompts"):
        model = resolve_model(spec)
        history.append(record_environment(spec, recording.folder, host, model))
        prompts = generate_prompts(
            (TASK,),
            prompts=2 + (CANDIDATES if matrix.mixed_requests else 0),
            tokens=matrix.prompt_tokens,
            seed=matrix.seed,
            tokenizer=ModelTokenizer(model.path),
        )
        witness = load_witness(model.path)
    sealed = matrix.identity == VARIANT
    bench = Bench(spec, model, recording.logs, recording.run_id)
    token_ids = [list(prompt.token_ids) for prompt in prompts]
    disks = recording.folder / "store"
    with Lab(bench, MP, disks / MP) as lab:
        lab.start()
        alone = spec.device == "cuda"
        if alone:
            # vLLM counts what others take on its GPU while it starts as used by itself.
            lab.connect()
        with lone_engine(bench, "control", None) as control:
            if not alone:
                lab.connect()
            history.append(_started(lab))
            history.append(_lone(MP, "control", control))
            work = Workshop(matrix, model, lab.sdk, lab.rope, _prefilling(lab))
            with Progress("making artifacts"):
                names = {name for case in cases for name in case.artifacts}
                made = work.make(token_ids[0], token_ids[1], names)
            chunk = lab.sdk.chunk_size_tokens
            prompts_of = Prompts(made, token_ids[1][::-1], _tail(token_ids[0], chunk), chunk)
            truth = Truth(control, witness, lab.rope, history, matrix.new_tokens)
            record_truth(truth, prompts_of, cases)
            topics = _topics(work, truth, token_ids) if matrix.mixed_requests else []
            for one in [*made.values(), *(topic.made for topic in topics)]:
                history.append(artifact_event(one, sealed=sealed))
        lab.cache.clear()
        if topics:
            _mix(bench, lab, topics, history, sealed=sealed)
        rounds = Rounds(made, prompts_of, history, sealed, cases)
        if MP in backends:
            _all_rounds(_served(lab, model, matrix), matrix.restarts, rounds)
    for backend in backends:
        if backend not in (MP, PROCESS):
            _on_own_engines(bench, Lab(bench, backend, disks / backend), rounds)
    if PROCESS in backends:
        with InProcessSurface(spec, model, next(iter(made.values()))) as surface:
            _all_rounds(surface, matrix.restarts, rounds)
    shutil.rmtree(disks, ignore_errors=True)  # absent where no backend keeps anything


def backends_with_cases(
    backends: Sequence[str], restarts: Sequence[str], cases: Sequence[Case]
) -> list[str]:
    """Return the backends in which a case exists, with or without one of the restarts.

    Raises:
        OptionError: there is none.
    """
    afters = (NONE, *restarts)
    found = [
        backend
        for backend in backends
        if any(case.runs_in(backend, after) for case in cases for after in afters)
    ]
    if not found:
        raise OptionError(
            "none of the chosen cases exists in these backends",
            option="matrix.cases",
            value=", ".join(case.name for case in cases),
            expected=f"a case that exists in {' or '.join(backends)}",
            remedy="choose others: `kvseal matrix --list --json` says where each exists",
        )
    return found


def _on_own_engines(bench: Bench, lab: Lab, rounds: Rounds) -> None:
    """Run all rounds of a backend, or say why it can't be used."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lab)
        except KvsealError as error:  # of its second tier: no engine was started yet
            rounds.history.append(unusable(lab.backend, error))
            return
        lab.start()
        lab.connect()
        rounds.history.append(_started(lab))
        _all_rounds(
            _served(lab, bench.model, bench.spec.matrix), bench.spec.matrix.restarts, rounds
        )


def unusable(backend: str, error: KvsealError) -> dict[str, Any]:
    """Return the event of a backend that was asked for and can't be used."""
    remedy = error.remedy or "leave this backend out"
    return builders.backend_unusable(backend=backend, message=error.message, remedy=remedy)


def _all_rounds(surface: Surface, restarts: Sequence[str], rounds: Rounds) -> None:
    for after in (NONE, *restarts):
        run_cells(surface, after, rounds)


def _served(lab: Lab, model: ModelDirectory, matrix: Matrix) -> ServedSurface:
    return ServedSurface(lab, str(model.path), matrix.new_tokens)


def _topics(work: Workshop, truth: Truth, token_ids: Sequence[Sequence[int]]) -> list[Topic]:
    with Progress("choosing topics of the mixed traffic"):
        topics = list(telling(truth, work.topics(token_ids[1], token_ids[2:]), TOPICS))
    if not topics:
        raise EvidenceError(
            "no prompt is answered differently from transformed and from ordinary KV",
            value=f"{len(token_ids) - 2} tried",
            remedy="drop more, generate more tokens, or use another seed",
        )
    return topics


def _mix(
    bench: Bench, lab: Lab, topics: Sequence[Topic], history: HistoryWriter, *, sealed: bool
) -> None:
    matrix = bench.spec.matrix
    lists = requests(topics, matrix.mixed_requests, matrix.seed, sealed=sealed)
    with lone_engine(bench, "plain", lab.endpoint) as plain:
        history.append(_lone(MP, "plain", plain))
        snapkv = SnapkvClient(lab.sdk, lab.client, matrix.new_tokens, sealed=sealed)
        run_mixed(snapkv, PlainClient(plain, matrix.new_tokens), lists, history)
    lab.cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS)
    lab.cache.clear()


def _prefilling(lab: Lab) -> Callable[[Sequence[int], str], None]:
    """How KV and queries of token IDs get into the lab's cache: vLLM computes them."""

    def prefilled(token_ids: Sequence[int], cache_salt: str) -> None:
        prefill(lab.client, lab.cache, token_ids, kinds=2, cache_salt=cache_salt)

    return prefilled


def _started(lab: Lab) -> dict[str, Any]:
    return builders.engines_started(
        backend=lab.backend, after=NONE, engine="main", **lab.describe()
    )


def _lone(backend: str, engine: str, client: CompletionClient) -> dict[str, Any]:
    return builders.engines_started(
        backend=backend, after=NONE, engine=engine, vllm={"url": client.base_url}, lmcache={}
    )


def artifact_event(made: Made, *, sealed: bool) -> dict[str, Any]:
    """Return the event of an artifact; one that is sealed anew for each cell has no manifest yet.

    `sealed` False: nothing has an identity.
    """
    local = made.name in ARTIFACTS and ARTIFACTS[made.name].local
    artifact = None if made.seal is None or local or not sealed else made.seal()
    return builders.artifact(
        name=made.name,
        kind=made.kind,
        token_ids=made.token_ids,
        source_tokens=len(made.source_token_ids),
        variant="" if artifact is None else artifact.variant,
        manifest=None if artifact is None else artifact.manifest.to_json(),
        manifest_sha256=None if artifact is None else artifact.manifest.digest,
        payload_sha256=payload_digest(made.keys, made.values),
    )


def _tail(prompt: Sequence[int], chunk_tokens: int) -> list[int]:
    return list(prompt[len(prompt) // chunk_tokens * chunk_tokens :])
