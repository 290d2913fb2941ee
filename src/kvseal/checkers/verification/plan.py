# SPDX-License-Identifier: Apache-2.0
"""Which answers there have to be: from the probes and the targets, not from what came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kvseal.checkers.verification.reasons import Reason, reason
from kvseal.checkers.verification.request import Request
from kvseal.errors import EvidenceError
from kvseal.records.history import Event
from kvseal.spec.contracts import CONTROL
from kvseal.workload.probes import Geometry, Probe, control_repetitions, planned_generations


class AnswerKey(NamedTuple):
    """The place of one answer in a run."""

    target: str
    probe: str
    kind: str
    repetition: int

    @classmethod
    def of(cls, event: Event) -> AnswerKey:
        """Return the place that an answer, or a missing one, is recorded for."""
        return cls(event["target"], event["probe"], event["kind"], event["repetition"])


@dataclass(frozen=True)
class Plan:
    """The probes by id, in order, and the answers that each target must give them.

    `geometry` is None where it is not known. `generations` counts the answers of
    the control, of each target and in total.
    """

    probes: Mapping[str, Probe] = field(default_factory=dict)
    geometry: Geometry | None = None
    keys: frozenset[AnswerKey] = frozenset()
    generations: Mapping[str, int] = field(default_factory=dict)

    def answers(self, target: str, probe: str) -> list[AnswerKey]:
        """Return the answers of `target` to `probe`, in the order they are given in."""
        return self._by_probe.get((target, probe), [])

    @cached_property
    def _by_probe(self) -> dict[tuple[str, str], list[AnswerKey]]:
        found: dict[tuple[str, str], list[AnswerKey]] = {}
        for key in sorted(self.keys):
            found.setdefault((key.target, key.probe), []).append(key)
        return found

    def of_prompt(self, prompt: str) -> list[Probe]:
        """Return the probes that send this prompt."""
        return [probe for probe in self.probes.values() if probe.prompt == prompt]


def make_plan(request: Request, manifest: Event | None, found: list[Reason]) -> Plan:
    """Return what `manifest` and `request` ask for; what is wrong is added to `found`."""
    if manifest is None:
        return Plan()
    try:
        probes = [Probe.from_json(document) for document in manifest["probes"]]
        _consistent(probes)
        geometry = Geometry.from_json(manifest["geometry"])
    except EvidenceError as error:
        found.append(reason("run.manifest_wrong", problem=error))
        return Plan()
    generations = planned_generations(request.suite, probes, request.targets)
    if dict(manifest["generations_planned"]) != generations:
        found.append(
            reason(
                "run.plan_differs",
                recorded=_counts(manifest["generations_planned"]),
                planned=_counts(generations),
            )
        )
    keys = [
        AnswerKey(CONTROL, probe, CONTROL, repetition)
        for probe, count in control_repetitions(request.suite, probes).items()
        for repetition in range(count)
    ]
    for target in request.targets:
        for probe in probes:
            keys.append(AnswerKey(target, probe.id, "cold", 0))
            keys += [
                AnswerKey(target, probe.id, "reuse", repetition)
                for repetition in range(1, probe.reuse_count + 1)
            ]
    return Plan({probe.id: probe for probe in probes}, geometry, frozenset(keys), generations)


def _consistent(probes: list[Probe]) -> None:
    """Refuse probes among which an answer could belong to two, or that are none."""
    if not probes:
        raise EvidenceError("there is no probe")
    prompts: dict[str, tuple[int, ...]] = {}
    ids = set()
    for probe in probes:
        if probe.id in ids:
            raise EvidenceError(f"two probes are called {probe.id}")
        ids.add(probe.id)
        if prompts.setdefault(probe.prompt, probe.token_ids) != probe.token_ids:
            raise EvidenceError(f"two probes of prompt {probe.prompt} send different tokens")


def _counts(generations: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {count}" for name, count in generations.items())
