# SPDX-License-Identifier: Apache-2.0
"""What a verification stood on: its evidence contract, and what of the machine deviates from it.

Versions and digests in sentences, with all changed files in a table. Takes the
report document and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvseal.report.verification_reasons import Report, listed

CHANGED_HEADINGS = ("package", "file", "SHA-256 as installed")
DIGEST_CHARACTERS = 12
MAX_FILES = 3
"""Changed files named in a sentence; the table of them has all."""


def contract_lines(report: Report) -> list[str]:
    """Return the contract that the verdict stands on, and each thing to know beside it."""
    contract = report["contract"]
    if not contract:
        return ["evidence contract: unknown"]
    accepted = report["request"].get("accepted_deviations") or ()
    return [
        f"evidence contract {contract.get('name')}: {contract.get('statement')}",
        *(
            f"deviation from it, {'' if entry.get('what') in accepted else 'not '}accepted: "
            f"{_deviation(entry)}"
            for entry in _deviations(report)
        ),
        *(note["text"] for note in report["notes"] if note["code"] != "contract.deviation"),
    ]


def _deviations(report: Report) -> list[Mapping[str, Any]]:
    found = report["contract"].get("deviations")
    entries = found if isinstance(found, (list, tuple)) else ()
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _deviation(entry: Mapping[str, Any]) -> str:
    what, expected, found = (entry.get(name) for name in ("what", "expected", "found"))
    if isinstance(found, Mapping) and "changed_files" in found:
        return _changed(found)
    if what == "torch":
        return f"torch {found or 'is not installed'} where {expected} is pinned"
    found, expected = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in (found, expected)
    )
    return f"{what} is {found}, expected {expected}"


def _changed(found: Mapping[str, Any]) -> str:
    """Return in words how an installed package differs from the published one."""
    compiled = found.get("changed_compiled") or {}
    names = [
        f"{name.rpartition('/')[2]} {str(digest)[:DIGEST_CHARACTERS]}…"
        for name, digest in compiled.items()
    ]
    if names[MAX_FILES:]:
        names[MAX_FILES:] = [f"{len(names) - MAX_FILES} more"]
    missing = found.get("missing_files")
    share = "all" if len(compiled) == found["changed_files"] else f"{len(compiled)} of them"
    return (
        f"{found.get('name')} {found.get('version')}: {found['changed_files']} of "
        f"{found.get('recorded_files')} files changed"
        + (f", {missing} missing" if missing else "")
        + (f", built from {found['built_from']}" if found.get("built_from") else "")
        + (f", {share} compiled: {listed(names)}" if names else "")
    )


def changed_file_rows(report: Report) -> list[tuple[str, str, str]]:
    """Return the files that are not as published: package, file, SHA-256 as installed."""
    rows = []
    for entry in _deviations(report):
        found = entry.get("found")
        if isinstance(found, Mapping) and "changed_files" in found:
            package = f"{found.get('name')} {found.get('version')}"
            rows += [
                (package, str(name), str(digest))
                for name, digest in (found.get("changed_compiled") or {}).items()
            ]
            rows += [
                (package, str(name), "not compiled, or missing")
                for name in found.get("changed_some") or ()
            ]
            rows.append((package, "all that changed", str(found.get("changed_sha256"))))
    return rows
