# SPDX-License-Identifier: Apache-2.0
"""Counts over a store of any size: by source, class, model, variant and tenant.

What is kept does not grow with the number of entries but for twelve bytes each
(kvseal.audit.shadow): groups, findings and examples are limited, and what goes
beyond a limit is still counted, under `omitted`. Cache salts are shown as
their SHA-256 unless the caller asks for them. Called by kvseal.audit.run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvseal.audit.classify import Class, Found, Judgement
from kvseal.audit.index import salt_sha256
from kvseal.audit.key_text import KeyText
from kvseal.audit.names import shown_name
from kvseal.audit.shadow import Shadows

MAX_GROUPS = 65536
"""As many variants as a variant index takes."""
MAX_SIZES = 16
"""Different sizes that are told apart among entries that should have one."""
MAX_EXAMPLES = 5
INDEX = -1
"""Stands for the variant index where a source's number stands otherwise."""

_COMPARED = {Class.ORDINARY, Class.VARIANT, Class.UNJUDGED, Class.ORPHANED}

Group = tuple[int, Class, str, str, str]
"""Source number, class, model, variant, cache salt."""


class Tally:
    """How many, and how many bytes."""

    __slots__ = ("entries", "size_bytes")

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0

    def add(self, size_bytes: int, entries: int = 1) -> None:
        """Count `entries` of `size_bytes` together."""
        self.entries += entries
        self.size_bytes += size_bytes

    def to_json(self) -> dict[str, int]:
        """Return both figures."""
        return {"entries": self.entries, "size_bytes": self.size_bytes}


class Summary:
    """Takes in one judged thing after the other; `show_salts` shows tenants by their salts."""

    def __init__(self, *, show_salts: bool = False, shadows: Shadows | None = None) -> None:
        self.classes: dict[int, dict[Class, Tally]] = {}
        self._show_salts = show_salts
        self._groups: dict[Group, Tally] = {}
        self._omitted = Tally()
        self._sizes: dict[tuple[int, str, str, int], Counter[int]] = {}
        self._findings: dict[tuple[int, str], tuple[Tally, list[str]]] = {}
        self._shadows = shadows or Shadows()
        self._shadow_groups: dict[tuple[int, str, str], int] = {}

    def add(self, source: int, found: Found, judged: Judgement) -> None:
        """Count one thing of source number `source`."""
        if source not in self.classes:
            self.classes[source] = {kind: Tally() for kind in Class}
        self.classes[source][judged.kind].add(found.size_bytes)
        salt = judged.key.cache_salt if judged.key else ""
        group = (source, judged.kind, judged.model, judged.variant, salt)
        tally = self._groups.get(group)
        if tally is None:
            full = len(self._groups) >= MAX_GROUPS
            tally = self._omitted if full else self._groups.setdefault(group, Tally())
        tally.add(found.size_bytes)
        if judged.code:
            self.finding(source, judged.code, found.name, found.size_bytes)
        if judged.key is not None and judged.kind in _COMPARED:
            self._compare(source, found.size_bytes, judged, judged.key)

    def finding(self, source: int, code: str, name: str, size_bytes: int) -> None:
        """Count something that is not in order, and keep the first names as examples."""
        tally, examples = self._findings.setdefault((source, code), (Tally(), []))
        tally.add(size_bytes)
        if len(examples) < MAX_EXAMPLES:
            examples.append(shown_name(name, show_salts=self._show_salts))

    def _compare(self, source: int, size_bytes: int, judged: Judgement, key: KeyText) -> None:
        sized = (source, judged.model, judged.variant, key.object_group_id)
        sizes = self._sizes.get(sized)
        if sizes is None and len(self._sizes) < MAX_GROUPS:
            sizes = self._sizes.setdefault(sized, Counter())
        if sizes is not None:
            # Beyond the limit all sizes count as one: they differ in any case.
            known = size_bytes in sizes or len(sizes) < MAX_SIZES
            sizes[size_bytes if known else -1] += 1
        group = (source, judged.model, key.cache_salt)
        number = self._shadow_groups.get(group)
        if number is None and len(self._shadow_groups) < MAX_GROUPS:
            number = self._shadow_groups.setdefault(group, len(self._shadow_groups))
        if number is None:
            self._shadows.left_out += 1
        else:
            transformed = judged.kind is not Class.ORDINARY
            self._shadows.add(key.chunk_hash, number, transformed=transformed)

    def finish(self) -> None:
        """Look for what only the whole store can show; call once, after the last `add`."""
        for (source, model, variant, group), sizes in self._sizes.items():
            if len(sizes) > 1:
                self._size_finding(source, model, variant, group, sizes)
        names = {number: group for group, number in self._shadow_groups.items()}
        for prefix, number in self._shadows.found():
            source, model, salt = names[number]
            tenant = salt if self._show_salts else salt_sha256(salt)[:12]
            of_tenant = f" of tenant {tenant}" if salt else ""
            self.finding(source, "suspicious.same-tokens", f"{model}: {prefix}…{of_tenant}", 0)

    def _size_finding(
        self, source: int, model: str, variant: str, group: int, sizes: Counter[int]
    ) -> None:
        usual, _ = max(sizes.items(), key=lambda item: (item[1], item[0]))
        others = {size: count for size, count in sizes.items() if size != usual}
        tally, examples = self._findings.setdefault((source, "suspicious.size"), (Tally(), []))
        entries = sum(others.values())
        tally.add(sum(max(size, 0) * count for size, count in others.items()), entries)
        if len(examples) < MAX_EXAMPLES:
            named = f"{model} {variant}".rstrip()
            text = f"{named}, object group {group}: {entries} not of {usual} bytes"
            examples.append(shown_name(text, show_salts=True))

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups, largest first within a class."""
        order = list(Class)

        def place(item: tuple[Group, Tally]) -> tuple[Any, ...]:
            (source, kind, model, variant, salt), tally = item
            return (source, order.index(kind), -tally.size_bytes, model, variant, salt)

        return [
            {
                "source": source,
                "class": kind.value,
                "model": shown_name(model, show_salts=True),
                "variant": variant,
                "cache_salt_sha256": salt_sha256(salt),
                "cache_salt": salt if self._show_salts else None,
                **tally.to_json(),
            }
            for (source, kind, model, variant, salt), tally in sorted(
                self._groups.items(), key=place
            )
        ]

    def findings(self) -> list[dict[str, Any]]:
        """Return what is not in order, the worst first."""
        order = [kind.value for kind in reversed(Class)]
        return [
            {
                "code": code,
                "class": code.partition(".")[0],
                "source": None if source == INDEX else source,
                **tally.to_json(),
                "examples": examples,
            }
            for (source, code), (tally, examples) in sorted(
                self._findings.items(),
                key=lambda item: (order.index(item[0][1].partition(".")[0]), item[0]),
            )
        ]

    def omitted(self) -> dict[str, int]:
        """Return what was counted beyond the limits and stands in no group or comparison."""
        return {
            "entries_without_group": self._omitted.entries,
            "size_bytes_without_group": self._omitted.size_bytes,
            "entries_not_compared": self._shadows.left_out,
        }
