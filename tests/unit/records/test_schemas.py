# SPDX-License-Identifier: Apache-2.0
"""Documents are held to the published schemas."""

import builtins

import jsonschema
import pytest

from kvseal.errors import EvidenceError, PrerequisiteError
from kvseal.records.schemas import NAMES, load_schema, validate


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_one_and_names_itself(name):
    jsonschema.Draft202012Validator.check_schema(load_schema(name))
    # The verifier's report keeps the identifier it is known by.
    assert load_schema(name)["$id"] == (name if name.startswith("efim.") else f"kvseal.{name}")


def test_an_unknown_schema_is_refused():
    with pytest.raises(EvidenceError, match="no such schema"):
        load_schema("compare-result.v9")


def test_a_wrong_document_is_refused_with_its_place():
    with pytest.raises(EvidenceError, match=r"not a document of compare-result\.v1"):
        validate({"schema_version": 1}, "compare-result.v1")


def test_without_jsonschema_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "jsonschema":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PrerequisiteError, match="jsonschema"):
        validate({}, "compare-result.v1")
