# SPDX-License-Identifier: Apache-2.0
"""Ask the control and then each target, one process at a time, and write down what is seen.

Nothing runs beside the engine that is asked, so no target can warm up, slow
down or share memory with another. What fails on one target does not keep the
next from being asked: the two candidates of a paired run stand for themselves.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from kvseal.drivers.verify.evidence import Evidence
from kvseal.drivers.verify.log_watch import LogWatch
from kvseal.drivers.verify.preflight import Prepared
from kvseal.drivers.verify.targets import SCOPE_TAG, engine_arguments, mismatches
from kvseal.engines.lmcache import CacheServer, LMCacheEndpoint, started_lmcache
from kvseal.engines.lmcache_http import LMCacheHTTP
from kvseal.engines.offline.client import OfflineEngine, offline_environment, started_offline
from kvseal.engines.offline.protocol import Answer, Question
from kvseal.errors import EngineError, KvsealError
from kvseal.process import Progress, segment_name
from kvseal.records import verification
from kvseal.spec.contracts import CONTROL, LMCACHE, MP
from kvseal.workload.probes import Probe, control_repetitions

SERVER_LOG = "lmcache-server.log"
STORE_SECONDS = 60.0
STORE_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Ask:
    """One answer to ask for. `repetition` counts from 0 within a probe."""

    kind: str
    repetition: int


BeforeReuse = Callable[[Probe, int, str], None]
"""Called before a reusing answer with its probe, repetition and cache scope."""


class Observer(Protocol):
    """Whoever wants at a target's cache between a first answer and its reuse."""

    def attached(
        self, target: str, server: LMCacheEndpoint | None
    ) -> AbstractContextManager[BeforeReuse]:
        """Be there while `target` runs; `server` is its LMCache server, None where it has none."""
        ...


def verify(prepared: Prepared, evidence: Evidence, *, observer: Observer | None = None) -> None:
    """Run the whole verification.

    `observer` is for measurements of the verifier's own power, which tamper with
    a store.

    Raises:
        KvsealError: the control could not be had, without which nothing can be compared.
    """
    with Progress("verifying") as progress:
        for target in (CONTROL, *prepared.targets):
            _Target(prepared, evidence, target, observer, progress).run()
            evidence.refresh()


class _Target:
    """One engine process from start to end."""

    def __init__(
        self,
        prepared: Prepared,
        evidence: Evidence,
        target: str,
        observer: Observer | None,
        progress: Progress,
    ) -> None:
        self.prepared = prepared
        self.evidence = evidence
        self.target = target
        self.observer = observer
        self.before_reuse: BeforeReuse | None = None
        self.progress = progress
        self.log = evidence.places.logs / f"{target}.log"
        self.server: LMCacheHTTP | None = None
        self.endpoint: LMCacheEndpoint | None = None
        self.disqualified = False

    def run(self) -> None:
        history = self.evidence.history
        engine: OfflineEngine | None = None
        try:
            with ExitStack() as stack:
                if self.target == MP:
                    self._start_server(stack)
                arguments = engine_arguments(self.prepared, self.target, self.endpoint)
                engine = stack.enter_context(
                    started_offline(
                        f"{self.target} engine",
                        arguments,
                        environment=self._environment(),
                        log=self.log,
                        run_id=self.evidence.run_id,
                        start_seconds=self.prepared.request.engine_start_seconds,
                    )
                )
                history.append(
                    verification.target_started(
                        target=self.target, engine={**engine.described, **self._server_described()}
                    )
                )
                watch = LogWatch(self.log, self.prepared.contract.disqualifying)
                found = mismatches(self.prepared, self.target, engine.described, arguments)
                for mismatch in found:
                    self._disqualify(mismatch)
                self._look(watch, None)
                if self.observer is not None:
                    # Leaves before the engine and its server do.
                    self.before_reuse = stack.enter_context(
                        self.observer.attached(self.target, self.endpoint)
                    )
                self._probes(engine, watch)
                if self.target == CONTROL and self.disqualified:
                    raise EngineError(
                        "the control is not the one that was asked for",
                        remedy=f"the report says how it differs; log: {self.log}",
                    )
        except KvsealError as error:
            history.append(
                verification.error(
                    where=type(error).__name__, message=str(error), target=self.target
                )
            )
            if self.target == CONTROL:
                raise
        finally:
            # Only what really started can have ended.
            if engine is not None:
                history.append(
                    verification.target_finished(
                        target=self.target,
                        status=engine.status,
                        log=str(self.log.relative_to(self.evidence.places.folder)),
                    )
                )

    def _start_server(self, stack: ExitStack) -> None:
        request = self.prepared.request
        server = stack.enter_context(
            started_lmcache(
                CacheServer(
                    chunk_size_tokens=self.prepared.geometry.chunk_tokens,
                    l1_gib=request.cache_gib,
                    port=request.server_port,
                    http_port=request.server_http_port,
                    start_timeout_seconds=request.server_start_seconds,
                    visible_devices=request.visible_devices,
                ),
                python=sys.executable,
                log=self.evidence.places.logs / SERVER_LOG,
                segment=segment_name(self.evidence.run_id),
                run_id=self.evidence.run_id,
            )
        )
        server.wait_ready()
        self.endpoint = server.endpoint
        self.server = LMCacheHTTP(server.endpoint.http_url)

    def _server_described(self) -> dict[str, Any]:
        if self.server is None:
            return {}
        log = (self.evidence.places.logs / SERVER_LOG).relative_to(self.evidence.places.folder)
        return {"lmcache_server": {"log": str(log), "config": self.server.config()}}

    def _environment(self) -> dict[str, str]:
        request, settings = self.prepared.request, self.prepared.settings
        environment = offline_environment(
            self.prepared.ground.device,
            cpu_kv_gib=request.cpu_kv_gib,
            visible_devices=request.visible_devices,
        )
        if self.target == LMCACHE and settings is not None:
            environment["LMCACHE_CONFIG_FILE"] = str(settings.path)
        return environment

    def _probes(self, engine: OfflineEngine, watch: LogWatch) -> None:
        history = self.evidence.history
        rounds = self._rounds()
        for number, (probe, asks, last) in enumerate(rounds, start=1):
            self.progress.update(f"{self.target}, {number} of {len(rounds)}: {probe.id}")
            for ask in asks:
                if self.disqualified:
                    return
                self._answer(engine, probe, ask)
                self._look(watch, probe)
            if last and not self.disqualified:
                history.append(verification.probe_completed(target=self.target, probe=probe.id))
                self.evidence.refresh()

    def _rounds(self) -> list[tuple[Probe, list[Ask], bool]]:
        """What to ask, in order: a probe, its answers, and whether these are its last.

        A control that is to be repeated comes round again when all others have
        been asked, so that what drifts in between shows.
        """
        probes = self.prepared.probes
        if self.target != CONTROL:
            return [
                (
                    probe,
                    [
                        Ask("cold", 0),
                        *(Ask("reuse", number) for number in range(1, probe.reuse_count + 1)),
                    ],
                    True,
                )
                for probe in probes
            ]
        repetitions = control_repetitions(self.prepared.request.suite, probes)
        return [
            (probe, [Ask("control", number)], number == repetitions[probe.id] - 1)
            for number in range(max(repetitions.values(), default=0))
            for probe in probes
            if number < repetitions[probe.id]
        ]

    def _answer(self, engine: OfflineEngine, probe: Probe, ask: Ask) -> None:
        scope = f"{self.prepared.request.tenant}.{self.evidence.run_id}.{probe.scope}"
        if ask.kind == "reuse" and self.before_reuse is not None:
            self.before_reuse(probe, ask.repetition, scope)
        request = self.prepared.request
        question = Question(
            token_ids=list(probe.token_ids),
            max_tokens=request.max_tokens,
            seed=request.seed,
            scope=scope,
            kv_transfer_params={SCOPE_TAG: scope} if self.target == LMCACHE else {},
        )
        history = self.evidence.history
        try:
            answer, loaded = self._ask(engine, question, probe, ask)
        except KvsealError as error:
            history.append(
                verification.answer_missing(
                    target=self.target,
                    probe=probe.id,
                    kind=ask.kind,
                    repetition=ask.repetition,
                    reason=error.message,
                )
            )
            raise
        history.append(
            verification.answer(
                target=self.target,
                probe=probe.id,
                kind=ask.kind,
                repetition=ask.repetition,
                prompt_token_ids=answer.prompt_token_ids,
                token_ids=answer.token_ids,
                cached_tokens=answer.cached_tokens,
                server_hit_tokens=loaded,
                finish_reason=answer.finish_reason,
                top2=answer.top2,
            )
        )

    def _ask(
        self, engine: OfflineEngine, question: Question, probe: Probe, ask: Ask
    ) -> tuple[Answer, int | None]:
        """Return the answer, and the tokens that a cache server says it loaded for it."""
        server = self.server
        if server is None:
            return engine.ask(question), None
        model = str(self.prepared.model.path)
        objects = server.wait_unlocked(timeout_seconds=STORE_SECONDS).objects
        before = server.hit_counters(model, question.scope)
        answer = engine.ask(question)
        if ask.kind == "cold":
            chunk = self.prepared.geometry.chunk_tokens
            new = probe.tokens // chunk - probe.cold_prefix_tokens // chunk
            self._wait_stored(server, objects + new)
        server.wait_unlocked(timeout_seconds=STORE_SECONDS)
        loaded = server.hit_counters(model, question.scope).since(before).loaded
        return answer, loaded

    def _wait_stored(self, server: LMCacheHTTP, objects: int) -> None:
        """Wait for the chunks of an answer, which arrive after it; hits tell if some never do."""
        deadline = time.monotonic() + STORE_SECONDS
        while server.object_count() < objects and time.monotonic() < deadline:
            time.sleep(STORE_POLL_SECONDS)

    def _look(self, watch: LogWatch, probe: Probe | None) -> None:
        warnings, reasons = watch.read()
        name = None if probe is None else probe.id
        for line in warnings:
            self.evidence.history.append(
                verification.engine_warning(target=self.target, probe=name, line=line)
            )
        for reason in reasons:
            self._disqualify(reason)

    def _disqualify(self, reason: str) -> None:
        self.disqualified = True
        self.evidence.history.append(verification.disqualified(target=self.target, reason=reason))
