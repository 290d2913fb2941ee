# SPDX-License-Identifier: Apache-2.0
"""Who may reuse a transformed artifact, and what has to be shown before many may.

request-local   the request stream that made it, and nobody else. Bound to a
                random nonce, so that nobody can name it by chance. The default.
query-scoped    whoever has the same source and the same query.
prefix          whoever has the same source, whatever the query.
global          whoever has the same transform and format.

The two wide scopes claim that the payload does not depend on the query, or
not even on the source. That is a property of an algorithm, so an algorithm is
registered for it, with what shows it; nothing is registered here. A scope
never says whose the artifact is: tenants are kept apart by the cache salt.
Called by the manifest and by whatever turns a manifest into a key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from kvseal.errors import TransformError
from kvseal.identity.fields import check_choice, check_count, check_hex, check_text, refused

REQUEST_LOCAL = "request-local"
QUERY_SCOPED = "query-scoped"
PREFIX = "prefix"
GLOBAL = "global"

LETTERS = {REQUEST_LOCAL: "r", QUERY_SCOPED: "q", PREFIX: "p", GLOBAL: "g"}
"""Scope kinds from the narrowest to the widest, each with its letter in a variant text."""
KINDS = {letter: kind for kind, letter in LETTERS.items()}
NONCE_DIGITS = 32

_MAY_FIX = {
    PREFIX: ("algorithm", "parameters", "source", "format"),
    GLOBAL: ("algorithm", "parameters", "format"),
}


@dataclass(frozen=True)
class Scope:
    """A kind of scope and what binds it.

    `binding` is 32 random hex digits for request-local, the query digest for
    query-scoped, the source digest for prefix, and empty for global. That it
    equals the digest it must equal is the manifest's to check.
    """

    kind: str
    binding: str

    def __post_init__(self) -> None:
        check_choice(self.kind, LETTERS, "scope.kind")
        if self.kind == GLOBAL:
            if self.binding != "":
                raise refused(
                    "nothing binds a global scope", "scope.binding", self.binding, "empty text"
                )
        else:
            digits = NONCE_DIGITS if self.kind == REQUEST_LOCAL else 64
            check_hex(self.binding, "scope.binding", digits=digits)

    @property
    def letter(self) -> str:
        """The scope's letter in a variant text."""
        return LETTERS[self.kind]


def request_local() -> Scope:
    """Return a scope that no other request has: 128 random bits."""
    return Scope(REQUEST_LOCAL, secrets.token_hex(NONCE_DIGITS // 2))


def is_wider(kind: str, other: str) -> bool:
    """True when scope `kind` lets more requests in than `other`."""
    order = list(LETTERS)
    return order.index(kind) > order.index(other)


@dataclass(frozen=True)
class Proof:
    """Why a transform's payload may be shared widely.

    `scope` is the widest scope that follows, prefix or global. `fixed_by`
    names the manifest's parts that fix the payload between them; a query is
    never among them, nor a source for global. `shown_by` names the test that
    shows it both ways: the same parts give the same payload whatever else
    changes, and another value of any of them gives another.
    """

    scope: str
    fixed_by: tuple[str, ...]
    shown_by: str

    def __post_init__(self) -> None:
        check_choice(self.scope, _MAY_FIX, "proof.scope")
        allowed = _MAY_FIX[self.scope]
        named = tuple(self.fixed_by)
        if not named or len(set(named)) != len(named) or not set(named) <= set(allowed):
            raise refused(
                f"these inputs can't fix the payload of a {self.scope} transform",
                "proof.fixed_by",
                named,
                f"some of {', '.join(allowed)}",
            )
        if self.scope == PREFIX and "source" not in named:
            raise refused(
                "a payload that the source does not fix is no prefix transform's",
                "proof.fixed_by",
                named,
                "source among them, or scope global",
            )
        check_text(self.shown_by, "proof.shown_by")


_PROOFS: dict[tuple[str, int], Proof] = {}


def register_transform(name: str, version: int, *, proof: Proof) -> None:
    """Allow manifests of algorithm `name`, `version`, the scope that `proof` gives.

    A narrower scope never needs to be registered. Another version is another
    algorithm: it needs its own proof.

    Raises:
        EvidenceError: name or version are none.
        TransformError: it is registered already with another proof.
    """
    check_text(name, "algorithm.name")
    check_count(version, "algorithm.version")
    if not isinstance(proof, Proof):
        raise refused("a transform is registered with its proof", "proof", proof, "a Proof")
    if _PROOFS.setdefault((name, version), proof) != proof:
        raise TransformError(
            f"transform {name} {version} is registered with another proof",
            option="proof",
            value=_PROOFS[(name, version)].shown_by,
            expected="one proof a version",
            remedy="give the changed transform a new version",
        )


def check_allowed(kind: str, name: str, version: int) -> None:
    """Refuse a wide scope for a transform that was not registered for it.

    Raises:
        TransformError: naming the transform and what to do.
        EvidenceError: there is no such scope.
    """
    check_choice(kind, LETTERS, "scope.kind")
    if not is_wider(kind, QUERY_SCOPED):
        return
    proof = _PROOFS.get((name, version))
    if proof is None or is_wider(kind, proof.scope):
        raise TransformError(
            f"no proof that {name} {version} may be shared in scope {kind}",
            option="scope.kind",
            value=kind,
            expected=f"{REQUEST_LOCAL} or {QUERY_SCOPED}"
            + ("" if proof is None else f" or {proof.scope}"),
            remedy="kvseal.identity.register_transform with a proof, or a narrower scope",
        )
