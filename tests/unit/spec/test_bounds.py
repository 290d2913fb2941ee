# SPDX-License-Identifier: Apache-2.0
"""A value at each edge of its range passes; one beyond is refused by its symbol."""

import dataclasses

import pytest

from kvseal.spec import bounds
from kvseal.spec.options import OPTIONS, symbol


def with_field(spec, field, value):
    section, name = field.split(".")
    part = dataclasses.replace(getattr(spec, section), **{name: value})
    return dataclasses.replace(spec, **{section: part})


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.kind is int], ids=lambda option: option.name
)
def test_edges(spec_with, option):
    section, name = option.field.split(".")
    rule = bounds.schema()["properties"][section]["properties"][name]
    for good in (rule["minimum"], rule["maximum"]):
        assert not list(bounds.problems(with_field(spec_with(), option.field, good)))
    for bad in (rule["minimum"] - 1, rule["maximum"] + 1):
        (problem,) = bounds.problems(with_field(spec_with(), option.field, bad))
        assert problem.option == symbol(option.name)
        assert (problem.value, problem.remedy is not None) == (bad, True)


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("vllm.dtype", "bfloat16", "half"),
        ("vllm.visible_devices", "0,GPU-1a2b", "0; rm"),
        ("vllm.visible_devices", "0", "0\n"),
        ("vllm.version", "0.28.0rc1", "latest"),
        ("model.source", "path", "mirror"),
        ("model.name", "x", ""),
        ("python.version", "3.12", "python3.12"),
        ("roots.work", "/w", "w"),
    ],
)
def test_form(spec_with, field, good, bad):
    assert not list(bounds.problems(with_field(spec_with(), field, good)))
    (problem,) = bounds.problems(with_field(spec_with(), field, bad))
    assert problem.value == bad and problem.expected
