# SPDX-License-Identifier: Apache-2.0
"""A value at each edge of its range passes; one beyond is refused by its symbol."""

import dataclasses

import pytest

from kvseal.spec import bounds
from kvseal.spec.options import WORKFLOWS


def with_field(spec, field, value):
    section, name = field.split(".")
    part = dataclasses.replace(getattr(spec, section), **{name: value})
    return dataclasses.replace(spec, **{section: part})


@pytest.mark.parametrize(
    ("workflow", "option"),
    [
        pytest.param(name, option, id=option.symbol)
        for name, flow in WORKFLOWS.items()
        for option in flow.options
        if option.kind is int
    ],
)
def test_edges(makers, workflow, option):
    make = makers[workflow]
    section, name = option.field.split(".")
    rule = bounds.schema()["properties"][section]["properties"][name]
    for good in (rule["minimum"], rule["maximum"]):
        assert not list(bounds.problems(with_field(make(), option.field, good)))
    for bad in (rule["minimum"] - 1, rule["maximum"] + 1):
        (problem,) = bounds.problems(with_field(make(), option.field, bad))
        assert problem.option == f"CONFIG_{option.symbol}"
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
def test_form(any_with, field, good, bad):
    assert not list(bounds.problems(with_field(any_with(), field, good)))
    (problem,) = bounds.problems(with_field(any_with(), field, bad))
    assert problem.value == bad and problem.expected


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("verify.contract", "strict", "lax"),
        ("verify.connector", "none", "NixlConnector"),
        ("verify.suite", "acceptance", "all"),
        ("verify.prompt_format", "", "xml"),
        ("verify.prompt_format", "both", "Raw"),
        ("verify.tenant", "a.b-c_1", ""),
        ("verify.tenant", "a" * 64, "a" * 65),
        ("verify.tenant", "a", "a b"),
        ("verify.tenant", "a", "-a"),
        ("verify.fixture", "", "x.json"),
    ],
)
def test_form_of_a_verification(verify_with, field, good, bad):
    assert not list(bounds.problems(with_field(verify_with(), field, good)))
    (problem,) = bounds.problems(with_field(verify_with(), field, bad))
    assert problem.value == bad and problem.expected
    assert problem.option.startswith("CONFIG_WORKFLOW_KNLP_KV_REUSE_")


def test_empty_choice_is_named(verify_with):
    (problem,) = bounds.problems(with_field(verify_with(), "verify.prompt_format", "xml"))
    assert problem.expected == "empty or raw or chat or both"


def test_identity_is_variant_or_none(matrix_with):
    assert not list(bounds.problems(with_field(matrix_with(), "matrix.identity", "none")))
    (problem,) = bounds.problems(with_field(matrix_with(), "matrix.identity", "salt"))
    assert problem.expected == "variant or none"
    assert problem.option == "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX_STOCK"
