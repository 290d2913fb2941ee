# SPDX-License-Identifier: Apache-2.0
"""The exact variant: a short text that names one manifest, and how a model name carries it.

    variant     <scope letter>1<32 characters of base32, lower case>
    model name  <model>##tv1-<variant>

32 characters hold the first 160 bits of the manifest digest without padding,
so there is one text for each value. The empty variant is ordinary KV and
leaves the name as it is, byte for byte.

The mark stands last, behind whatever LMCache appends. LMCache's suffixes
(`##query` of captured queries, `##lmcache-dcp-layout-v1-…`) are put on once
in a process, when SDK context, query ring or connector are made; the variant
is another one with each request and so comes later. A server takes the mark
off the end and has the name that LMCache registered. The other order,
`<model>##tv1-<variant>##query`, is refused and not read as a second spelling.

Whatever holds `##tv` but is no such name is refused, never taken for
ordinary. Edited LMCache and vLLM never import this; they hold the same rules.

Source: LMCache 0.5.4 and 0.5.6, `sdk/cache_kind.py: server_model_name`,
`sdk/qringbuffer.py: submit_q_store_request`; 0.5.6
`integration/vllm/lmcache_mp_connector.py: _DCP_LAYOUT_NAMESPACE`.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, NamedTuple

from kvseal.errors import EvidenceError, OptionError
from kvseal.identity.fields import check_choice, check_hex, refused
from kvseal.identity.scope import KINDS, LETTERS, check_allowed

if TYPE_CHECKING:
    from kvseal.identity.manifest import TransformManifest

VERSION = "1"
MARK = "##tv1-"
RESERVED = "##tv"
"""No ordinary name, salt or LoRA name holds this, in either case: later versions start so too."""
QUERY_SUFFIX = "##query"

_DIGEST_DIGITS = 40
_SHAPE = re.compile(r"[a-z][0-9][a-z2-7]{32}")


class Variant(NamedTuple):
    """A variant text taken apart: scope kind, and the first 40 hex digits of a manifest digest."""

    scope: str
    digest: str


def variant_text(scope: str, manifest_digest: str) -> str:
    """Return the variant text for a scope kind and a whole manifest digest (64 hex digits).

    An encoding and no permission: `variant_of` asks whether the scope is allowed.

    Raises:
        EvidenceError: scope or digest are none.
    """
    check_choice(scope, LETTERS, "scope.kind")
    check_hex(manifest_digest, "manifest digest")
    bits = bytes.fromhex(manifest_digest[:_DIGEST_DIGITS])
    return LETTERS[scope] + VERSION + base64.b32encode(bits).decode("ascii").lower()


def variant_of(manifest: TransformManifest) -> str:
    """Return the variant text of a manifest whose scope its algorithm may have.

    Raises:
        TransformError: a wide scope without a registered proof.
    """
    check_allowed(manifest.scope.kind, manifest.algorithm.name, manifest.algorithm.version)
    return variant_text(manifest.scope.kind, manifest.digest)


def parse_variant(text: str, *, at: str = "variant") -> Variant:
    """Take a variant text apart; the inverse of `variant_text` up to the bits it holds.

    Raises:
        EvidenceError: naming `at`; `text` is empty, malformed, or of an unknown
            scope or version.
    """
    _check_text(text, at)
    return Variant(KINDS[text[0]], base64.b32decode(text[2:].upper()).hex())


def _check_text(text: str, at: str) -> None:
    expected = f"a scope letter, {VERSION}, and 32 characters of a-z and 2-7"
    if type(text) is not str or not _SHAPE.fullmatch(text):
        raise refused("malformed variant", at, text, expected)
    if text[0] not in KINDS:
        raise refused("variant of an unknown scope", at, text, f"a letter of {''.join(KINDS)}")
    if text[1] != VERSION:
        raise refused("variant of an unknown version", at, text, expected)


def check_variant(text: str, manifest: TransformManifest) -> None:
    """Refuse a manifest that is not the one the variant text names.

    The text holds 160 bits; the manifest brings the other 96, and whoever
    keeps the whole digest compares that as well.

    Raises:
        EvidenceError: they differ, or `text` is no variant.
    """
    _check_text(text, "variant")
    own = variant_text(manifest.scope.kind, manifest.digest)
    if text != own:
        raise EvidenceError(
            "the manifest is not that of the variant asked for",
            option="variant",
            value=own,
            expected=text,
        )


def check_unmarked(what: str, text: str) -> None:
    """Refuse a caller's model name, cache salt or LoRA name that holds the mark of a variant.

    Case is not looked at: some file systems do not look at it either.

    Raises:
        OptionError: naming `what`.
    """
    if RESERVED in text.lower():
        raise OptionError(
            f"{RESERVED} in a name is reserved for transformed KV",
            option=what,
            value=text,
            expected=f"a text without {RESERVED}",
            remedy="name the variant as the request's variant, not inside another name",
        )


def decorate(model_name: str, variant: str) -> str:
    """Return the model name that keys of `variant` carry.

    `model_name` is what LMCache would write, its own suffixes included. The
    empty variant gives it back.

    Raises:
        OptionError: the name holds the mark already.
        EvidenceError: `variant` is neither empty nor a variant text.
    """
    check_unmarked("model name", model_name)
    if variant == "":
        return model_name
    _check_text(variant, "variant")
    return model_name + MARK + variant


def split(model_name: str) -> tuple[str, str]:
    """Return model name and variant of a name in a key; the inverse of `decorate`.

    Raises:
        EvidenceError: something in it looks like a variant's mark and is none.
    """
    if RESERVED not in model_name.lower():
        return model_name, ""
    model, mark, variant = model_name.rpartition(MARK)
    if not mark or RESERVED in model.lower():
        raise refused(
            "malformed mark of a variant",
            "model name",
            model_name,
            f"an ordinary name, or one that ends with {MARK} and a variant",
        )
    _check_text(variant, "variant")
    return model, variant


def server_model_name(model: str, variant: str, *, query: bool) -> str:
    """Return the name of a model's KV, or of its captured queries, for any variant.

    Raises:
        OptionError: `model` holds the mark, or ends as the queries of another model do.
        EvidenceError: `variant` is neither empty nor a variant text.
    """
    if model.endswith(QUERY_SUFFIX):
        raise OptionError(
            "a model can't be named like another one's queries",
            option="model name",
            value=model,
            expected=f"a name that does not end with {QUERY_SUFFIX}",
            remedy="serve the model under another name",
        )
    return decorate(model + QUERY_SUFFIX if query else model, variant)


def parse_server_model_name(name: str) -> tuple[str, str, bool]:
    """Return model, variant and whether it names queries; the inverse of `server_model_name`.

    Raises:
        EvidenceError: as `split`; and for a name with two suffixes for queries.
    """
    model, variant = split(name)
    if not model.endswith(QUERY_SUFFIX):
        return model, variant, False
    model = model.removesuffix(QUERY_SUFFIX)
    if model.endswith(QUERY_SUFFIX):
        raise refused("queries of queries", "model name", name, f"one {QUERY_SUFFIX} at most")
    return model, variant, True
