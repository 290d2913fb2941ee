# SPDX-License-Identifier: Apache-2.0
"""How a name from a store is shown: no control characters, no tenant's cache salt.

A store's names are anybody's text. The salt is the last field of a key text,
so whatever stands where a salt can stand is replaced by the beginning of its
SHA-256, malformed names included. Called by kvseal.audit.summary.
"""

from __future__ import annotations

import re

from kvseal.audit.index import salt_sha256
from kvseal.audit.key_text import FIELD, FILE_END

MAX_SHOWN = 300
"""Characters; a file name has 255 at most, an S3 object's name 1024."""

_ENDS = (f"{FILE_END}.tmp", FILE_END, ".tmp")
_HEX_FIELD = re.compile(r"(0x)?[0-9a-fA-F]+")


def shown_name(name: str, *, show_salts: bool) -> str:
    """Return `name` as valid, printable text of at most MAX_SHOWN characters."""
    text = name if show_salts else _without_salt(name)
    safe = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in safe
    )
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 1]}…"


def _without_salt(name: str) -> str:
    end = next((end for end in _ENDS if name.endswith(end)), "")
    model, *fields = name.removesuffix(end).split(FIELD)
    kept = [
        field if place < 3 and _HEX_FIELD.fullmatch(field) else f"sha256:{salt_sha256(field)[:12]}"
        for place, field in enumerate(fields)
    ]
    return FIELD.join([model, *kept]) + end
