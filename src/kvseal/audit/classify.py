# SPDX-License-Identifier: Apache-2.0
"""Each thing in a store gets exactly one class, and a code that says why it is not in order.

    ordinary    a key of LMCache's without a variant
    variant     a variant whose manifest stands in the variant index, for this tenant
    unjudged    a variant, and no index was named to look it up in
    orphaned    a variant without a manifest
    suspicious  no entry of LMCache's: a foreign file or key, a temporary file
    damaged     what LMCache can't have written in this form
    forged      a name that only resembles a variant's mark, or must not be in an L2

Judges names and sizes alone, never raises on either, and trusts no name. No
files, no network. Called by kvseal.audit.run for each thing that a reader of
kvseal.audit.stores finds.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from kvseal.audit.key_text import FIELD, FILE_END, KeyText, is_text, parse_fs, parse_native
from kvseal.errors import EvidenceError
from kvseal.identity.scope import LETTERS, REQUEST_LOCAL
from kvseal.identity.variant import MARK, RESERVED, split

TEMPORARY_END = ".tmp"
"""fs writes `<name without .data>.tmp`, fs_native `<name>.tmp`, and then renames."""


class Class(enum.Enum):
    """What an entry is; in the order in which they are shown."""

    ORDINARY = "ordinary"
    VARIANT = "variant"
    UNJUDGED = "unjudged"
    ORPHANED = "orphaned"
    SUSPICIOUS = "suspicious"
    DAMAGED = "damaged"
    FORGED = "forged"


class Shape(enum.Enum):
    """What kind of thing a reader found under a name."""

    ENTRY = "entry"
    BELOW = "below"
    """A file in a folder inside the store, where LMCache keeps temporary files at most."""
    NO_BYTES = "no bytes"
    """A link, device, or Redis value of another type than text: nothing LMCache makes."""


class Found(NamedTuple):
    """One thing in a store. Bytes of its name that are no UTF-8 are lone surrogates."""

    name: str
    size_bytes: int
    shape: Shape = Shape.ENTRY


class Judgement(NamedTuple):
    """A class; a code unless all is in order; key and variant where the name is a key."""

    kind: Class
    code: str = ""
    key: KeyText | None = None
    model: str = ""
    variant: str = ""


class Manifests(Protocol):
    """What classification asks of a variant index (kvseal.audit.index)."""

    def trouble(self, variant: str, cache_salt: str) -> str:
        """Return "" where the tenant has a manifest of `variant`, else the code that says why."""


def judge(found: Found, *, file_names: bool, manifests: Manifests | None) -> Judgement:
    """Return what `found` is.

    `file_names` says that names are those of fs and not native texts. Without
    `manifests` a well-formed variant is unjudged.
    """
    judged = _by_name(found.name, file_names, manifests)
    if found.shape is Shape.NO_BYTES and judged.kind is not Class.FORGED:
        like_key = judged.key is not None
        kind, code = (
            (Class.DAMAGED, "damaged.type") if like_key else (Class.SUSPICIOUS, "suspicious.type")
        )
        return judged._replace(kind=kind, code=code)
    if found.shape is Shape.BELOW and judged.kind is not Class.FORGED:
        code = "suspicious.unknown" if judged.key is None else "suspicious.temporary"
        return judged._replace(kind=Class.SUSPICIOUS, code=code)
    is_entry = judged.kind not in (Class.FORGED, Class.SUSPICIOUS)
    if found.size_bytes == 0 and judged.key is not None and is_entry:
        return judged._replace(kind=Class.DAMAGED, code="damaged.empty")
    return judged


def _by_name(name: str, file_names: bool, manifests: Manifests | None) -> Judgement:
    key = parse_fs(name) if file_names else parse_native(name)
    if key is not None:
        return _by_key(key, manifests)
    if file_names and name.endswith(TEMPORARY_END):
        stem = name.removesuffix(TEMPORARY_END)
        key = parse_fs(stem) or parse_fs(stem + FILE_END)
        if key is not None:
            judged = _by_key(key, manifests)
            if judged.kind is Class.FORGED:
                return judged
            return judged._replace(kind=Class.SUSPICIOUS, code="suspicious.temporary")
    if RESERVED in name.lower():
        return Judgement(Class.FORGED, "forged.mark")
    fields = name.count(FIELD)
    like_key = (fields > 0 and name.endswith(FILE_END)) if file_names else fields >= 3
    if like_key or (fields > 0 and not is_text(name)):
        return Judgement(Class.DAMAGED, "damaged.key-text")
    return Judgement(Class.SUSPICIOUS, "suspicious.unknown")


def _by_key(key: KeyText, manifests: Manifests | None) -> Judgement:
    code = ""
    model, variant = key.model_name, ""
    try:
        model, variant = split(key.model_name)
    except EvidenceError:
        before, mark, _ = key.model_name.rpartition(MARK)
        malformed = bool(mark) and RESERVED not in before.lower()
        code = "forged.variant" if malformed else "forged.mark"
    if RESERVED in key.cache_salt.lower():
        code = "forged.salt"
    elif variant and not model:
        code = "forged.mark"
    elif variant.startswith(LETTERS[REQUEST_LOCAL]):
        code = "forged.request-local"
    elif variant and manifests is not None:
        code = manifests.trouble(variant, key.cache_salt)
    if code:
        kind = Class(code.partition(".")[0])
    elif variant:
        kind = Class.UNJUDGED if manifests is None else Class.VARIANT
    else:
        kind = Class.ORDINARY
    return Judgement(kind, code, key, model, variant)
