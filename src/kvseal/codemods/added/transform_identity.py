# SPDX-License-Identifier: Apache-2.0
"""Transform identity, added by kvseal: how a key and a request name a transformed KV artifact.

    variant     <scope letter>1<32 characters of base32, lower case>
    model name  <model>##tv1-<variant>
    request     kv_transfer_params: {"lmcache.variant": "<variant>"}

The mark stands last in a model name, behind what LMCache appends itself
(`##query`). The empty variant is ordinary KV and changes no byte. Whatever
looks like a mark or like the request's key and isn't one is refused with
ValueError, never taken for ordinary. This module stands by itself; `kvseal`
is not needed where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

CAPABILITY = "transform_identity_v1"
MARK = "##tv1-"
RESERVED = "##tv"
REQUEST_KEY = "lmcache.variant"
TOKENS_KEY = "lmcache.variant_tokens"

_VARIANT = re.compile(r"[rqpg]1[a-z2-7]{32}")


def validate(text: Any) -> str:
    """Return `text` where it is a variant; the empty text is none."""
    if type(text) is str and _VARIANT.fullmatch(text):
        return text
    if type(text) is str and re.fullmatch(r"[rqpg][0-9][a-z2-7]{32}", text):
        raise ValueError(f"variant {text!r} is of an unknown version, expected version 1")
    raise ValueError(
        f"malformed variant {text!r}, expected a scope letter of r, q, p and g, the version 1 "
        "and 32 characters of a-z and 2-7"
    )


def scope(variant: str) -> str:
    """Return the scope letter: r request-local, q query-scoped, p prefix, g global."""
    return validate(variant)[0]


def announcement(scopes: str = "rqpg") -> list[str]:
    """Return what a server that takes variants of `scopes` announces."""
    return [CAPABILITY, *(f"{CAPABILITY}:{letter}" for letter in scopes)]


def require_announced(variant: str, announced: Any, server: str) -> None:
    """Refuse to send `variant` to a server that did not announce that it takes it."""
    if f"{CAPABILITY}:{scope(variant)}" not in announced:
        known = f"takes other scopes than that of {variant!r}"
        raise ValueError(
            f"LMCache server {server} "
            f"{known if CAPABILITY in announced else f'does not announce {CAPABILITY}'}; "
            "start one that takes this variant"
        )


def refuse_forged(text: Any, what: str) -> None:
    """Refuse a name or salt from outside that holds the mark; case is not looked at."""
    if isinstance(text, str) and RESERVED in text.lower():
        raise ValueError(
            f"{what} {text!r} holds {RESERVED}, which is reserved for transformed KV; "
            f"name a variant as {REQUEST_KEY} of kv_transfer_params"
        )


def decorate(model_name: str, variant: str) -> str:
    """Return the model name for keys of `variant`; LMCache's own suffixes are on it already."""
    refuse_forged(model_name, "model name")
    return model_name + MARK + validate(variant) if variant != "" else model_name


def split(model_name: str) -> tuple[str, str]:
    """Return model name and variant of a name in a key; the inverse of `decorate`."""
    if RESERVED not in model_name.lower():
        return model_name, ""
    model, mark, variant = model_name.rpartition(MARK)
    if not mark or RESERVED in model.lower():
        raise ValueError(f"malformed mark of a variant in model name {model_name!r}")
    return model, validate(variant)


def of_request(kv_transfer_params: Any, cache_salt: Any = None) -> tuple[str, int]:
    """Return the variant a request names and how many tokens of it must be found.

    ("", 0) for an ordinary request; the number is 0 where none is given.
    Refused are keys that only look like ours, as a typing error would make the
    request an ordinary one, and a salt that holds the mark.
    """
    refuse_forged(cache_salt, "cache salt")
    if not isinstance(kv_transfer_params, Mapping):
        return "", 0
    for key in kv_transfer_params:
        like = str(key).lower().replace("_", ".").replace("-", ".")
        if like.startswith(REQUEST_KEY) and key not in (REQUEST_KEY, TOKENS_KEY):
            raise ValueError(
                f"unknown key {key!r} in kv_transfer_params, expected {REQUEST_KEY} or {TOKENS_KEY}"
            )
    variant = kv_transfer_params.get(REQUEST_KEY, "")
    tokens = kv_transfer_params.get(TOKENS_KEY, 0)
    if type(tokens) is not int or tokens < 0:
        raise ValueError(f"{TOKENS_KEY} {tokens!r} is no number of tokens")
    if variant == "" and type(variant) is str:
        if tokens:
            raise ValueError(f"{TOKENS_KEY} {tokens} without {REQUEST_KEY}")
        return "", 0
    return validate(variant), tokens
