# SPDX-License-Identifier: Apache-2.0
"""The root folders: writable, executable where programs are installed, and large enough."""

from __future__ import annotations

from kvseal.host.checks import needs
from kvseal.host.checks.outcome import Outcome, gib, judged, undecided
from kvseal.host.facts import HostFacts
from kvseal.host.roots import Root
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


def roots(facts: HostFacts, spec: CommonSpec) -> list[Outcome]:
    """Each root is, or can be made, a folder to write in; programs run from the cache root."""
    outcomes = []
    for name, fact in facts.roots.items():
        title, needed = f"{name} root", "a folder this user may write in"
        if fact.value is None:
            outcomes.append(undecided(title, fact.reason, needed))
            continue
        root = fact.value
        problem = root.problem
        if not problem and name == "cache":
            needed += " and run programs from"
            if root.noexec:
                problem = f"{root.existing} is on a file system mounted noexec"
        found = root.path if root.path == root.existing else f"{root.path} (to be made)"
        outcomes.append(
            judged(
                title,
                not problem,
                problem or found,
                needed,
                [
                    f"set {symbols_of(f'roots.{name}', spec.workflow)} to another folder, or give "
                    "this user the right"
                ],
            )
        )
    return outcomes


def disk(facts: HostFacts, spec: CommonSpec) -> list[Outcome]:
    """What a file system has free covers all the roots that lie on it together."""
    wanted = _wanted(facts, spec)
    by_device: dict[int, list[tuple[str, Root]]] = {}
    for name, fact in facts.roots.items():
        if fact.value is not None:
            by_device.setdefault(fact.value.device, []).append((name, fact.value))
    outcomes = []
    for group in by_device.values():
        names = [name for name, _ in group]
        parts = [part for name in names for part in wanted[name]]
        size = sum(part for part, _ in parts)
        words = " + ".join(f"{gib(part)} {what}" for part, what in parts)
        title = f"disk for {' and '.join(names)}"
        free = group[0][1].free_bytes
        found = f"{gib(free)} free at {group[0][1].existing}"
        if free >= size and "cache" in names and facts.model_parameters.value is None:
            outcomes.append(
                undecided(
                    title, f"{found}; {facts.model_parameters.reason}", f"{words} + the model"
                )
            )
            continue
        options = " or ".join(symbols_of(f"roots.{name}", spec.workflow) for name in names)
        outcomes.append(
            judged(
                title,
                free >= size,
                found,
                f"{gib(size)}: {words}",
                [f"free some space, or move {options} to a larger file system"],
            )
        )
    return outcomes


def _wanted(facts: HostFacts, spec: CommonSpec) -> dict[str, list[tuple[int, str]]]:
    """Return for each root what will be written there: bytes and words."""
    cache = []
    if not facts.environment_ready.value:
        cache.append((needs.ENVIRONMENT_BYTES[spec.device], "engine environment"))
    weights = needs.weight_bytes(facts, spec)
    if weights is not None and spec.model.source != "path":
        cache.append((weights, "weights"))
    return {
        "work": [(needs.WORK_BYTES, "runs and logs")],
        "results": [(needs.WORK_BYTES, "results")],
        "cache": cache or [(0, "nothing new")],
    }
