# SPDX-License-Identifier: Apache-2.0
"""What `kvseal audit` prints: the verdict, what each source holds, what is not in order.

A view of the document alone; the document has all groups, this the largest.
Called by kvseal.cli.audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal.audit.classify import Class
from kvseal.audit.names import shown_name
from kvseal.audit.words import WORDS

MAX_GROUPS = 20
NO_SALT = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of the empty text."""


def console(document: Mapping[str, Any]) -> str:
    """Return the document as text for a terminal."""
    lines = [f"{document['verdict']}  {_sentence(document)}", ""]
    lines += _sources(document)
    lines += _index(document["index"])
    if document["payload_checked"]:
        lines.append("bytes were read, and the seals of variants checked")
    if document["groups"]:
        lines += ["", *_groups(document["groups"])]
    for finding in document["findings"]:
        lines += ["", *_finding(finding, document["sources"])]
    omitted = document["omitted"]
    if any(omitted.values()):
        lines += [
            "",
            f"beyond the limits: {omitted['entries_without_group']:,} entries stand in no group, "
            f"{omitted['entries_not_compared']:,} were not compared by their tokens",
        ]
    return "\n".join(lines)


def _sentence(document: Mapping[str, Any]) -> str:
    counts = {kind: tally["entries"] for kind, tally in document["classes"].items()}
    verdict = document["verdict"]
    if verdict == "PASS":
        open_ones = counts["unjudged"] + counts["orphaned"] + counts["suspicious"]
        also = " forged or damaged" if open_ones or document["findings"] else " out of order"
        return f"{document['entries']:,} entries, none{also}"
    if verdict == "FAIL":
        places = [item for item in document["findings"] if _fails(item, document["strict"])]
        count = sum(item["entries"] for item in places)
        return f"{count:,} that must not be there, among {document['entries']:,} entries"
    errors = [source for source in document["sources"] if source["error"]]
    if errors or (document["index"] and document["index"]["error"]):
        return "not everything could be read"
    if document["entries"] == 0:
        return "there is no entry at all, so nothing was shown"
    return "variants were not looked up in a variant index (--index)"


def _fails(finding: Mapping[str, Any], strict: bool) -> bool:
    return strict or finding["class"] in ("forged", "damaged")


def _sources(document: Mapping[str, Any]) -> list[str]:
    kinds = [kind.value for kind in Class]
    heading = ["", "source", *kinds, "size"]
    rows = [
        [
            str(number),
            f"{source['kind']} {shown_name(source['name'], show_salts=True)}",
            *(f"{source['classes'][kind]['entries']:,}" for kind in kinds),
            size_text(source["size_bytes"]),
        ]
        for number, source in enumerate(document["sources"])
    ]
    lines = _table([heading, *rows], left=2)
    for number, source in enumerate(document["sources"]):
        if source["error"]:
            text = shown_name(source["error"], show_salts=True)
            lines.append(f"source {number} was not read to its end: {text}")
    return lines


def _index(index: Mapping[str, Any] | None) -> list[str]:
    if index is None:
        return ["no variant index was named: variants are unjudged"]
    lines = [
        f"variant index {shown_name(index['folder'], show_salts=True)}: "
        f"manifests {index['manifests']:,}, without entries {index['manifests_without_entries']:,}"
    ]
    if index["error"]:
        lines.append(f"the index was not read to its end: {index['error']}")
    return lines


def _groups(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    shown = sorted(groups, key=lambda group: -group["size_bytes"])[:MAX_GROUPS]
    rows = [["", "class", "model", "variant", "tenant", "entries", "size"]]
    rows += [
        [
            str(group["source"]),
            group["class"],
            group["model"] or "-",
            group["variant"] or "-",
            _tenant(group),
            f"{group['entries']:,}",
            size_text(group["size_bytes"]),
        ]
        for group in shown
    ]
    lines = _table(rows, left=5)
    if len(groups) > len(shown):
        lines.append(f"… and {len(groups) - len(shown):,} smaller groups (--json shows them)")
    return lines


def _tenant(group: Mapping[str, Any]) -> str:
    if group["cache_salt_sha256"] == NO_SALT:
        return "-"
    if group["cache_salt"] is None:
        return f"sha256:{group['cache_salt_sha256'][:12]}"
    return shown_name(group["cache_salt"], show_salts=True)


def _finding(finding: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> list[str]:
    words = WORDS[finding["code"]]
    where = "the variant index" if finding["source"] is None else f"source {finding['source']}"
    lines = [
        f"{finding['code']}: {finding['entries']:,} in {where}, {size_text(finding['size_bytes'])}",
        f"  {words.meaning}",
        *(f"    {name}" for name in finding["examples"]),
    ]
    if finding["entries"] > len(finding["examples"]) > 0:
        lines.append("    …")
    return [*lines, f"  remedy: {words.remedy}"]


def size_text(size_bytes: int) -> str:
    """Return a size in the largest binary unit in which it is at least 1."""
    value, unit = float(size_bytes), "B"
    for following in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, following
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def _table(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
