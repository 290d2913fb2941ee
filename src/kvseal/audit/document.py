# SPDX-License-Identifier: Apache-2.0
"""The document of an audit, schema kvseal.audit-result.v1, and its verdict.

Made of counts alone; the store is not looked at again. Called by
kvseal.audit.run; kvseal.audit.text prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvseal.audit.classify import Class
from kvseal.audit.index import VariantManifests
from kvseal.audit.summary import Summary, Tally
from kvseal.verdict import Verdict, merge

SCHEMA = "kvseal.audit-result.v1"


def index_json(
    folder: Path | None, manifests: VariantManifests | None, error: str | None
) -> dict[str, Any] | None:
    """Return what the document says of the variant index; None where none was named."""
    if folder is None:
        return None
    return {
        "folder": str(folder),
        "manifests": manifests.count if manifests else 0,
        "manifests_without_entries": manifests.unused if manifests else 0,
        "error": error,
    }


def make_document(
    sources: Sequence[tuple[str, str, str | None]],
    summary: Summary,
    index: dict[str, Any] | None,
    *,
    payload: bool,
    strict: bool,
) -> dict[str, Any]:
    """Return the document; `sources` are kind, name and error, in the order of their numbers."""
    whole = {kind: _total(item[kind] for item in summary.classes.values()) for kind in Class}
    findings = summary.findings()
    complete = not any(error for _, _, error in sources)
    complete = complete and (index is None or index["error"] is None)
    return {
        "schema": SCHEMA,
        "verdict": _verdict(whole, findings, complete, strict).value,
        "strict": strict,
        "payload_checked": payload,
        **_total(whole.values()).to_json(),
        "sources": [
            {
                "kind": kind,
                "name": name,
                **_total(classes.values()).to_json(),
                "classes": _classes_json(classes),
                "error": error,
            }
            for number, (kind, name, error) in enumerate(sources)
            for classes in [summary.classes.get(number) or {kind: Tally() for kind in Class}]
        ],
        "index": index,
        "classes": _classes_json(whole),
        "groups": summary.groups(),
        "findings": findings,
        "omitted": summary.omitted(),
    }


def _verdict(
    whole: dict[Class, Tally], findings: list[dict[str, Any]], complete: bool, strict: bool
) -> Verdict:
    """FAIL for what was found, whatever was not seen; INCONCLUSIVE where nothing was seen."""
    failing = {"forged", "damaged"} | ({"orphaned", "suspicious"} if strict else set())
    verdicts = [Verdict.FAIL] if any(item["class"] in failing for item in findings) else []
    if not complete or (strict and whole[Class.UNJUDGED].entries):
        verdicts.append(Verdict.INCONCLUSIVE)
    if any(tally.entries for tally in whole.values()):
        verdicts.append(Verdict.PASS)
    return merge(verdicts)


def _classes_json(classes: dict[Class, Tally]) -> dict[str, dict[str, int]]:
    return {kind.value: tally.to_json() for kind, tally in classes.items()}


def _total(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally.size_bytes, tally.entries)
    return total
