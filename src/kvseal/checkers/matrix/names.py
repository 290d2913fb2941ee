# SPDX-License-Identifier: Apache-2.0
"""Did each store and each request name what its case says: variant, tenant, tokens?

A request that names something else than its row claims shows nothing, however
it is answered. What a name has to be follows from the artifacts, from the
stores of the same cell, and from the case; where the history can't show it (a
request-local artifact that was never stored, a manifest changed in one field)
the name has at least to be a variant, and none that is stored in the cell.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.checkers.matrix.evidence import Evidence
from kvseal.checkers.matrix.place import Place
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.errors import EvidenceError
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.variant import MARK, RESERVED, parse_variant
from kvseal.records.history import Event
from kvseal.workload.matrix import ARTIFACTS, Ask, Required
from kvseal.workload.matrix.case import ARTIFACT, EXACT, INDEX, ORDINARY, TEXT

LONG_SALT = "long-salt"


class Names:
    """What one cell's names have to be."""

    def __init__(self, evidence: Evidence, place: Place) -> None:
        self._evidence = evidence
        self._place = place
        self._case = evidence.cases[place.case]
        cell = evidence.of(place)
        self._stores = cell.stored
        self._salt = "" if cell.begun is None else str(cell.begun["cache_salt"])

    def check_salt_of_cell(self) -> Iterator[Reason]:
        """Yield a reason where the cell's tenant is another cell's too, or nobody."""
        for other in self._evidence.salts.get(self._salt, ()):
            if other != self._place:
                yield reason(
                    "cell.salt_shared", self._place, salt=self._salt, other=f"the cell {other}"
                )
                return
        if self._salt == "" or RESERVED in self._salt.lower():
            yield reason(
                "cell.salt_shared", self._place, salt=self._salt, other="whoever names no tenant"
            )

    def check_store(self, event: Event) -> Iterator[Reason]:
        """Yield what is wrong with the names of one store."""
        name, variant = event["artifact"], event["variant"]
        where = f"the store of {name}"
        if not self._is_own_salt(event["cache_salt"]):
            yield self._salt_reason(where, event["cache_salt"], f"{self._salt!r}")
        if name not in ARTIFACTS or event["refusal"] is not None:
            return  # of something that was refused nothing was named
        if self._evidence.stock or not ARTIFACTS[name].local:
            own = self._shared_variant(name)
            if variant != own:
                yield self._variant_reason(where, variant, f"{own!r}")
            return
        if not _is_local_variant(variant):
            yield self._variant_reason(where, variant, "a request-local one")
        for other in self._evidence.sealed.get(variant, ()):
            if other != self._place:
                yield reason(
                    "identity.not_fresh",
                    self._place,
                    artifact=name,
                    variant=variant,
                    other=f"the cell {other}",
                )
                return

    def check_ask(
        self, number: int, step: Ask, event: Event, required: Required
    ) -> Iterator[Reason]:
        """Yield what is wrong with the names of one request."""
        where, variant = f"step {number}", event["variant"]
        wanted = self._wanted(step, required)
        if wanted is None:
            if not _is_variant(variant) or variant in self._stored_variants():
                yield self._variant_reason(where, variant, "one that is not stored", number)
        elif variant not in wanted:
            texts = " or ".join(repr(text) for text in wanted)
            yield self._variant_reason(where, variant, texts, number)
        problem = self._wrong_salt(step, event["cache_salt"])
        if problem:
            yield self._salt_reason(where, event["cache_salt"], problem, number)

    def _wanted(self, step: Ask, required: Required) -> tuple[str, ...] | None:
        """Return the variants that a request may name; None: any that is not stored here."""
        what = step.identity.partition(":")[2]
        if self._evidence.stock or step.identity == ORDINARY:
            return ("",)
        if step.identity == EXACT:
            return self._own(step.prompt)
        if step.identity.startswith(ARTIFACT):
            return self._own(what)
        if step.identity.startswith(TEXT):
            return (what,)
        if step.identity == INDEX:
            # An index that is lost or can't be trusted names nothing.
            own = self._own(step.prompt)
            return own if own is None or required is Required.HIT else (*own, "")
        return None

    def _own(self, name: str) -> tuple[str, ...] | None:
        if name not in ARTIFACTS or not ARTIFACTS[name].local:
            return (self._shared_variant(name),)
        stored = tuple(dict.fromkeys(e["variant"] for e in self._stores if e["artifact"] == name))
        return stored or None

    def _shared_variant(self, name: str) -> str:
        event = self._evidence.artifacts.get(name)
        return "" if event is None or self._evidence.stock else str(event["variant"])

    def _stored_variants(self) -> set[str]:
        return {event["variant"] for event in self._stores}

    def _is_own_salt(self, salt: str) -> bool:
        if self._case.lie == LONG_SALT:
            return salt.startswith(self._salt)
        return salt == self._salt

    def _wrong_salt(self, step: Ask, salt: str) -> str | None:
        """Return in words which tenant the case demands, None where it is this one."""
        variants = self._stored_variants() - {""}
        if step.salt == "cell":
            return None if self._is_own_salt(salt) else repr(self._salt)
        if step.salt == "other":
            fresh = salt not in ("", self._salt) and salt not in self._evidence.salts
            return None if fresh else "a tenant that is no cell's"
        if self._evidence.stock:
            return None  # there is no variant that a tenant could be called by
        if step.salt == "variant":
            return None if salt in variants else "the text of the stored variant"
        marked = {MARK + variant for variant in variants}
        return None if any(mark in salt for mark in marked) else "one that holds the stored mark"

    def _variant_reason(
        self, where: str, found: str, wanted: str, step: int | None = None
    ) -> Reason:
        return reason(
            "identity.variant", self._place, where=where, found=found, wanted=wanted, step=step
        )

    def _salt_reason(self, where: str, found: str, wanted: str, step: int | None = None) -> Reason:
        return reason(
            "identity.salt", self._place, where=where, found=found, wanted=wanted, step=step
        )


def _is_variant(text: str) -> bool:
    try:
        parse_variant(text)
    except EvidenceError:
        return False
    return True


def _is_local_variant(text: str) -> bool:
    return _is_variant(text) and parse_variant(text).scope == REQUEST_LOCAL
