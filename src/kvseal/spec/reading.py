# SPDX-License-Identifier: Apache-2.0
"""Parsed JSON to dataclasses, strictly: no field too many, none missing, none of another type.

No default is filled in and nothing is converted but lists to tuples. Called by
kvseal.spec.runspec.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast, get_type_hints

from kvseal.errors import OptionError

_T = TypeVar("_T")


def build(kind: type[_T], value: Any, schema: str) -> _T:
    """Return a `kind`, a dataclass of dataclasses, from parsed JSON of `schema`.

    Raises:
        OptionError: naming the first field that is unknown, missing or mistyped.
    """
    return _object(kind, value, "", schema)


def _object(kind: type[_T], value: Any, path: str, schema: str) -> _T:
    if not isinstance(value, dict):
        raise OptionError(
            "run spec field must be an object",
            option=path or "run spec",
            value=value,
            expected="a JSON object",
        )
    resolved = get_type_hints(kind)
    hints = {field.name: resolved[field.name] for field in dataclasses.fields(cast(Any, kind))}
    unknown = sorted(set(value) - set(hints))
    missing = [name for name in hints if name not in value]
    if unknown or missing:
        name = (unknown or missing)[0]
        raise OptionError(
            "unknown run spec field" if unknown else "run spec field is missing",
            option=f"{path}.{name}".lstrip("."),
            expected=f"exactly the fields of {schema}",
            remedy="a run spec is made by `kvseal spec`, not by hand",
        )
    fields = {
        name: _field(hint, value[name], f"{path}.{name}".lstrip("."), schema)
        for name, hint in hints.items()
    }
    return kind(**fields)


def _field(hint: Any, value: Any, path: str, schema: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _object(hint, value, path, schema)
    # bool is an int in Python; in a spec they never stand for each other.
    for tuple_of, kind, words in (
        (tuple[str, ...], str, "a list of text"),
        (tuple[int, ...], int, "a list of integers"),
    ):
        if hint == tuple_of:
            if isinstance(value, list) and all(type(item) is kind for item in value):
                return tuple(value)
            raise OptionError(
                "run spec field has the wrong type", option=path, value=value, expected=words
            )
    if type(value) is not hint:
        raise OptionError(
            "run spec field has the wrong type",
            option=path,
            value=value,
            expected=str(hint.__name__),
        )
    return value
