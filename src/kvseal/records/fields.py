# SPDX-License-Identifier: Apache-2.0
"""Schemas of event fields, a table of events, and the small check that goes with them.

`fits` knows only the JSON Schema keywords used here, so that a node needs no
JSON Schema package. Used by the tables (kvseal.records.events and .verification)
and by kvseal.records.history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
SECONDS: dict[str, Any] = {"type": "number", "minimum": 0}
TEXT: dict[str, Any] = {"type": "string"}
SHA256: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
OBJECT: dict[str, Any] = {"type": "object"}
COUNTS: dict[str, Any] = {"type": "array", "items": COUNT}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}


def one_of(*values: str) -> dict[str, Any]:
    """Return the schema of a text that is one of `values`."""
    return {"type": "string", "enum": list(values)}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema`, with null allowed as well."""
    schema = {**schema, "type": [schema["type"], "null"]}
    return schema | {"enum": [*schema["enum"], None]} if "enum" in schema else schema


@dataclass(frozen=True)
class EventTable:
    """The events a history may hold: name → required fields, each with its schema. No others.

    `schema_id` and `title` head the published JSON Schema of one line.
    """

    schema_id: str
    title: str
    events: Mapping[str, Mapping[str, Mapping[str, Any]]]


_TYPES: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """True when `value` is what a field schema of an event table asks for.

    A test holds this to the jsonschema package on the published files.
    """
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_TYPES[name](value) for name in types):
        return False
    if value is None:
        return None in schema.get("enum", [None])
    return all(rule(value, schema[word]) for word, rule in _RULES.items() if word in schema)


_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "enum": lambda value, allowed: value in allowed,
    # The one pattern used is that of a digest; Python's `$` would let a newline through.
    "pattern": lambda value, _: len(value) == 64 and set(value) <= set("0123456789abcdef"),
    "minimum": lambda value, least: bool(value >= least),
    "minItems": lambda value, least: len(value) >= least,
    "maxItems": lambda value, most: len(value) <= most,
    "items": lambda value, schema: all(fits(item, schema) for item in value),
}
