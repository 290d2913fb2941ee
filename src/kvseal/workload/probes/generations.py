# SPDX-License-Identifier: Apache-2.0
"""How many generations a set of probes takes, counted before any engine starts.

The driver asks the control as often as `control_repetitions` says, and the
report holds what was completed against `planned_generations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvseal.errors import EvidenceError
from kvseal.spec.contracts import TARGETS
from kvseal.workload.probes.probe import Probe


def control_repetitions(suite: str, probes: Sequence[Probe]) -> dict[str, int]:
    """Return how often the control answers each probe, by probe id.

    A prompt is asked at least twice, so that a control that drifts shows:
    once for each of its probes, or twice for its only one. The acceptance
    suite has a fixed budget of one for each probe.
    """
    of_prompt = Counter(probe.prompt for probe in probes)
    alone = 1 if suite == "acceptance" else 2
    return {probe.id: alone if of_prompt[probe.prompt] == 1 else 1 for probe in probes}


def planned_generations(
    suite: str, probes: Sequence[Probe], targets: Sequence[str]
) -> dict[str, int]:
    """Return the generations of the control, of each target, and in total.

    A target answers each probe once cold and `reuse_count` times from its cache.
    Without targets the control is alone.

    Raises:
        EvidenceError: for a target that is unknown or named twice.
    """
    for target in targets:
        if target not in TARGETS or list(targets).count(target) > 1:
            raise EvidenceError(
                "unknown target, or named twice", value=target, expected=" or ".join(TARGETS)
            )
    answers = sum(1 + probe.reuse_count for probe in probes)
    planned = {"control": sum(control_repetitions(suite, probes).values())}
    planned.update(dict.fromkeys(targets, answers))
    planned["total"] = sum(planned.values())
    return planned
