# SPDX-License-Identifier: Apache-2.0
"""Ranges and allowed values of single run spec fields, as the published schema has them.

Reads run-spec.schema.json with the standard library, since node verbs and
tests of rules must not need a schema library. Called by kvseal.spec.rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

from kvseal.errors import OptionError
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


def schema() -> dict[str, Any]:
    """Return the run spec's JSON Schema."""
    text = resources.files("kvseal.spec").joinpath("run-spec.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def problems(spec: CommonSpec) -> Iterator[OptionError]:
    """Yield one error a field that is outside its range, list of values or form."""
    yield from _walk(schema(), spec.to_json(), "", spec.workflow)


def _walk(rule: dict[str, Any], value: Any, field: str, workflow: str) -> Iterator[OptionError]:
    if isinstance(value, dict):
        for name, inner in value.items():
            below = f"{field}.{name}".lstrip(".")
            yield from _walk(rule["properties"][name], inner, below, workflow)
        return
    expected = _expectation(rule, value)
    if expected is not None:
        yield OptionError(
            "value out of range" if "minimum" in rule else "value not allowed",
            option=symbols_of(field, workflow) or field,
            value=value,
            expected=expected,
            remedy="`make menuconfig` shows what it is for and what it may be",
        )


def _expectation(rule: dict[str, Any], value: Any) -> str | None:
    """Return what was expected where `value` breaks `rule`, else None."""
    if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
        return "text on one line, without control characters"
    checks: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], str]], ...] = (
        ("const", lambda const: value == const, repr),
        ("enum", lambda values: value in values, _choices),
        ("minimum", lambda low: value >= low, lambda _: _range(rule)),
        ("maximum", lambda high: value <= high, lambda _: _range(rule)),
        ("minLength", lambda length: len(value) >= length, lambda _: "some text"),
        ("pattern", lambda form: re.search(form, value), "text of the form {}".format),
    )
    for keyword, holds, say in checks:
        if keyword in rule and not holds(rule[keyword]):
            return say(rule[keyword])
    return None


def _choices(values: list[str]) -> str:
    return " or ".join(value or "empty" for value in values)


def _range(rule: dict[str, Any]) -> str:
    return f"{rule['minimum']} to {rule['maximum']}"
