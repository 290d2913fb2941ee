# SPDX-License-Identifier: Apache-2.0
"""One audit: index first, then every source from end to end, then one document.

A source that fails on the way does not end the audit: what was seen of it is
counted, its error stands in the document, and the verdict says that not all
was seen. Prints nothing, writes nothing. Called by kvseal.cli.audit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvseal.audit.classify import Class, Found, Judgement, judge
from kvseal.audit.document import index_json, make_document
from kvseal.audit.index import VariantManifests, read_index
from kvseal.audit.payload import SealCheck
from kvseal.audit.stores import Store
from kvseal.audit.summary import INDEX, Summary
from kvseal.errors import StoreError

TOLD_EVERY = 1000
"""Entries between two words on how far it is."""

_SEALABLE = {Class.VARIANT, Class.UNJUDGED, Class.ORPHANED}

Tell = Callable[[str], None]


def audit(
    stores: Sequence[Store],
    *,
    index: Path | None = None,
    payload: bool = False,
    strict: bool = False,
    show_salts: bool = False,
    tell: Tell = lambda state: None,
) -> dict[str, Any]:
    """Read everything and return the document of schema kvseal.audit-result.v1.

    `index` is a folder of a variant index, `payload` asks for the check of seals,
    `strict` lets orphaned and suspicious entries fail. `tell` hears how far it is.

    Raises:
        OptionError: there is no such index.
        PrerequisiteError: a package that was asked for is not installed.
    """
    summary = Summary(show_salts=show_salts)
    manifests, index_error = None, None
    if index is not None:
        tell("reading the variant index")
        try:
            manifests = read_index(
                index, lambda code, place, size: summary.finding(INDEX, code, place, size)
            )
        except StoreError as error:
            index_error = error.message
    walker = _Walker(manifests, SealCheck() if payload else None, summary, tell)
    errors = [walker.walk(number, store) for number, store in enumerate(stores)]
    summary.finish()
    return make_document(
        [(store.kind, store.name, error) for store, error in zip(stores, errors, strict=True)],
        summary,
        index_json(index, manifests, index_error),
        payload=payload,
        strict=strict,
    )


class _Walker:
    """Judges everything in one store after the other, by one index, into one summary."""

    def __init__(
        self,
        manifests: VariantManifests | None,
        check: SealCheck | None,
        summary: Summary,
        tell: Tell,
    ) -> None:
        self._manifests = manifests
        self._check = check
        self._summary = summary
        self._tell = tell

    def walk(self, number: int, store: Store) -> str | None:
        """Take in a store; return the error that ended it early, None where it ended."""
        seen = 0
        try:
            for found in store:
                judged = judge(found, file_names=store.file_names, manifests=self._manifests)
                self._summary.add(number, found, self._looked_into(number, store, found, judged))
                seen += 1
                if seen % TOLD_EVERY == 0:
                    self._tell(f"{store.name}: {seen:,} entries")
        except StoreError as error:
            return error.message
        return None

    def _looked_into(self, number: int, store: Store, found: Found, judged: Judgement) -> Judgement:
        """Return the judgement after a look at the bytes, where that was asked for."""
        transformed = judged.kind in _SEALABLE
        if self._check is None or judged.key is None:
            return judged
        if not transformed and judged.kind is not Class.ORDINARY:
            return judged
        code = self._check.trouble(
            judged.key,
            found.size_bytes,
            lambda offset, size: store.read(found, offset, size),
            transformed=transformed,
        )
        if code == "suspicious.unsealed":  # says nothing against the entry itself
            self._summary.finding(number, code, found.name, found.size_bytes)
            return judged
        return judged._replace(kind=Class(code.partition(".")[0]), code=code) if code else judged
