# SPDX-License-Identifier: Apache-2.0
"""What single fields of an identity document may hold; one rule a function.

In an identity an unknown field is refused, not ignored: whoever wrote it
meant that it decides what the KV is. Every rule takes the field's dotted path
and names it when it refuses. Called by the documents of this package.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, cast

from kvseal.canonical import MAX_SAFE_INTEGER
from kvseal.errors import EvidenceError

MAX_COUNT = 2**32 - 1
"""Largest count of tokens: positions are stored as uint32."""
MAX_TEXT = 256
MAX_PAIRS = 32

Pairs = tuple[tuple[str, Any], ...]
"""An object of free names, as pairs sorted by name: unlike a dict it can't change later."""

_HEX = frozenset("0123456789abcdef")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{0,39}[1-9])?")
_TENANCY = ("salt", "tenant")


def refused(message: str, at: str, value: object, expected: str) -> EvidenceError:
    """Return the error for field `at`; long values are cut so that a message stays readable."""
    shown = value if not isinstance(value, str) or len(value) <= 200 else value[:200] + "…"
    return EvidenceError(message, option=at, value=shown, expected=expected)


_FIELD_TYPES: dict[type, dict[str, Any]] = {}


def field_types(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass with their types, resolved."""
    if kind not in _FIELD_TYPES:
        resolved = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(cast(Any, kind))]
        _FIELD_TYPES[kind] = {name: resolved[name] for name in names}
    return _FIELD_TYPES[kind]


def part_of(hint: Any) -> type | None:
    """Return the dataclass that a field holds, or may hold; None where it holds none."""
    first = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return first if isinstance(first, type) and dataclasses.is_dataclass(first) else None


def check_parts(value: Any, at: str) -> None:
    """Hold those fields of a dataclass that are dataclasses to their types."""
    for name, hint in field_types(type(value)).items():
        part, held = part_of(hint), getattr(value, name)
        if part is not None and type(held) is not part and not (held is None and hint != part):
            raise refused(
                "field of another type", f"{at}.{name}".lstrip("."), held, f"a {part.__name__}"
            )


def closed_object(value: Any, names: Collection[str], at: str) -> dict[str, Any]:
    """Return `value` if it is an object with exactly the fields `names`.

    Raises:
        EvidenceError: naming the first field that is unknown or missing.
    """
    if type(value) is not dict:
        raise refused(
            "field must be an object", at or "document", value, f"an object of {', '.join(names)}"
        )
    for name in sorted(set(value) - set(names)):
        raise refused(
            "unknown field", f"{at}.{name}".lstrip("."), value[name], f"only {', '.join(names)}"
        )
    for name in names:
        if name not in value:
            raise refused("field is missing", f"{at}.{name}".lstrip("."), None, "every field")
    return value


def check_text(value: Any, at: str, *, longest: int = MAX_TEXT) -> None:
    """Text of 1 to `longest` characters without control characters and lone surrogates."""
    expected = f"text of 1 to {longest} characters, no control characters"
    if type(value) is not str or not 1 <= len(value) <= longest:
        raise refused("field must be text", at, value, expected)
    for character in value:
        code = ord(character)
        if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
            raise refused(f"U+{code:04X} in a text field", at, value, expected)


def check_choice(value: Any, allowed: Collection[str], at: str) -> None:
    """One of `allowed`."""
    if type(value) is not str or value not in allowed:
        raise refused("no such value", at, value, " or ".join(allowed))


def check_count(value: Any, at: str, *, least: int = 1) -> None:
    """An integer from `least` to 2^32-1; a boolean is none."""
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise refused("field must be a count", at, value, f"an integer, {least} to {MAX_COUNT}")


def check_hex(value: Any, at: str, *, digits: int = 64) -> None:
    """`digits` lowercase hexadecimal digits, by default a SHA-256."""
    if type(value) is not str or len(value) != digits or not set(value) <= _HEX:
        raise refused("field must be a digest", at, value, f"{digits} lowercase hex digits")


def check_name(value: Any, at: str) -> None:
    """A lower-case name that says nothing of tenants.

    Isolation of tenants is the cache salt's task. In an identity it would keep
    equal artifacts apart, and the name would tell whose they are.
    """
    if type(value) is not str or not _NAME.fullmatch(value):
        raise refused("no such name is allowed", at, value, "a-z, 0-9 and _, from a letter on")
    if any(word in value for word in _TENANCY):
        raise refused(
            "tenant isolation has no place in a transform's identity",
            at,
            value,
            "no field for tenants: the cache salt stands beside the identity, not in it",
        )


def check_pairs(value: Any, at: str) -> None:
    """At most 32 pairs of a name and any value, sorted by name, no name twice."""
    if type(value) is not tuple or not all(type(p) is tuple and len(p) == 2 for p in value):
        raise refused("field must be sorted pairs", at, value, "see kvseal.identity.fields.pairs")
    names = [name for name, _ in value]
    for name in names:
        check_name(name, f"{at}.{name}")
    if names != sorted(set(names)) or len(names) > MAX_PAIRS:
        raise refused("names must be sorted and unique", at, names, f"at most {MAX_PAIRS} names")


def check_parameter(value: Any, at: str) -> None:
    """An integer within ±(2^53-1), or text; a ratio is decimal text."""
    if type(value) is int:
        if abs(value) > MAX_SAFE_INTEGER:
            raise refused("integer too large", at, value, f"at most {MAX_SAFE_INTEGER} in size")
    elif type(value) is str:
        check_text(value, at)
    else:
        raise refused(
            "a parameter is an integer or text",
            at,
            value,
            "for a ratio decimal text: see kvseal.identity.decimal_text",
        )


def check_decimal(value: Any, at: str) -> None:
    """A number in decimal, in its one spelling: no exponent, no trailing zero, no -0."""
    if type(value) is not str or not _DECIMAL.fullmatch(value) or value == "-0":
        raise refused(
            "field must be decimal text", at, value, "as kvseal.identity.decimal_text writes it"
        )


def check_scaling(value: Any, at: str) -> None:
    """Decimal text, `true`, `false`, or `sha256:` and the digest of a list of numbers."""
    if type(value) is str and value.startswith("sha256:"):
        check_hex(value[len("sha256:") :], at)
    elif value not in ("true", "false"):
        check_decimal(value, at)


def pairs(value: Any, at: str) -> Pairs:
    """Return an object of free names as sorted pairs.

    Raises:
        EvidenceError: it is no object with names as keys.
    """
    if not isinstance(value, Mapping):
        raise refused("field must be an object", at, value, "an object")
    for name in value:
        check_name(name, f"{at}.{name}")
    return tuple(sorted(value.items()))


def decimal_text(value: int | float | Decimal) -> str:
    """Return the one decimal text of a finite number: 10000.0 → `10000`, 1e-05 → `0.00001`.

    Of a float, the shortest text that reads back as the same float.

    Raises:
        EvidenceError: it is no finite number, or needs more than 40 digits on a side.
    """
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    text = format(number, "f") if number.is_finite() else str(number)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    text = "0" if text == "-0" else text
    check_decimal(text, "number")
    return text
