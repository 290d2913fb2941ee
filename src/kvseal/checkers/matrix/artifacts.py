# SPDX-License-Identifier: Apache-2.0
"""Are the artifacts those of the table, each under the name that its manifest gives it?

A row that asks for another artifact shows nothing if the two are one: so each
variant is made again from its manifest here, and no two may be alike. The other
way round, where the table says that two artifacts stand under the same tokens,
they must, or a miss would prove only that the tokens differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from kvseal.canonical import digest
from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.checkers.matrix.truth import ORDINARY
from kvseal.errors import KvsealError
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.variant import parse_variant, variant_text
from kvseal.records.history import Event
from kvseal.workload.matrix import ARTIFACTS, ArtifactKind

SAME_TOKENS = (("snapkv-a", "literal-a"), ("fixed-a", "fixed-b"))
"""Artifacts of the table that must stand under the same token IDs, by their titles there."""


def check_artifacts(evidence: Evidence) -> Iterator[Reason]:
    """Yield what is wrong with the artifacts themselves."""
    known = {event["name"] for event in evidence.history.named("artifact")}
    for name in _needed(evidence):
        if name not in known:
            yield reason("artifact.missing", name=name)
    owners: dict[str, list[str]] = defaultdict(list)
    for name, event in evidence.artifacts.items():
        yield from _check(name, event, stock=evidence.stock)
        if event["variant"]:
            owners[event["variant"]].append(name)
    for names in owners.values():
        if len(names) > 1:
            yield reason("artifact.same_variant", names=" and ".join(names))
    for pair in SAME_TOKENS:
        tokens = {
            evidence.artifacts[name]["token_ids_sha256"]
            for name in pair
            if name in evidence.artifacts
        }
        if len(tokens) > 1:
            yield reason("artifact.tokens_differ", names=" and ".join(pair))


def _needed(evidence: Evidence) -> list[str]:
    """Return the artifacts that the cells to judge are about, in the table's order."""
    names = {name for place in evidence.places for name in evidence.cases[place.case].artifacts}
    return [name for name in ARTIFACTS if name in names]


def _check(name: str, event: Event, *, stock: bool) -> Iterator[Reason]:
    variant, manifest = event["variant"], event["manifest"]
    # Sources of the mixed requests are in no table: shared, and whatever they say they are.
    kind = ARTIFACTS.get(name, ArtifactKind(event["kind"], False, name))
    if event["kind"] != kind.kind:
        yield reason("artifact.kind", name=name, found=event["kind"], wanted=kind.kind)
    if manifest is not None:
        problem = _foreign(event, manifest)
        if problem:
            yield reason("artifact.manifest", name=name, problem=problem)
    elif event["manifest_sha256"] is not None:
        yield reason("artifact.manifest", name=name, problem="it has a digest and is not there")
    if stock or kind.kind == ORDINARY or kind.local:
        why = "nothing has one" if stock else "ordinary KV has none"
        why = "it is sealed anew in each cell" if kind.local and not stock else why
        if variant:
            yield reason("artifact.variant", name=name, variant=variant, problem=why)
        return
    problem = _unfit(variant, manifest)
    if problem:
        yield reason("artifact.variant", name=name, variant=variant, problem=problem)


def _foreign(event: Event, manifest: Mapping[str, Any]) -> str | None:
    """Say in words why the manifest is not that of the artifact, None if it is."""
    try:
        own = digest(manifest)
    except KvsealError as error:
        return error.message
    if event["manifest_sha256"] != own:
        return "its digest is another"
    if manifest.get("logical_tokens_sha256") != event["token_ids_sha256"]:
        return "it is of other tokens"
    return None


def _unfit(variant: str, manifest: Mapping[str, Any] | None) -> str | None:
    """Say in words why this can't be the variant of a shared artifact, None if it can."""
    if manifest is None:
        return "there is no manifest that says so"
    scope = manifest.get("scope")
    try:
        named = parse_variant(variant)
        own = variant_text(str(dict(scope or {}).get("kind")), digest(manifest))
    except (KvsealError, TypeError, ValueError) as error:
        return error.message if isinstance(error, KvsealError) else "the manifest has no scope"
    if variant != own:
        return f"its manifest gives {own}"
    return "it is request-local" if named.scope == REQUEST_LOCAL else None
