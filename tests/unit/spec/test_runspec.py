# SPDX-License-Identifier: Apache-2.0
"""The run spec keeps what it is given, refuses what it doesn't know, and agrees with its schema."""

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest

from kvseal.errors import OptionError
from kvseal.spec import bounds
from kvseal.spec.runspec import RunSpec

CHECKOUT = Path(__file__).resolve().parents[3]


def paths(value, prefix=()):
    """Every field of a run spec, objects and leaves, as a path of keys."""
    for key, inner in value.items():
        yield (*prefix, key)
        if isinstance(inner, dict):
            yield from paths(inner, (*prefix, key))


def changed(plain, path, value):
    result = copy.deepcopy(plain)
    place = result
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


def valid(plain):
    return jsonschema.Draft202012Validator(bounds.schema()).is_valid(plain)


def test_round_trip(spec_with, tmp_path):
    spec = spec_with()
    (tmp_path / "run-spec.json").write_text(spec.dumps())
    assert RunSpec.load(tmp_path / "run-spec.json") == spec
    assert RunSpec.from_json(spec.to_json()).sha256() == spec.sha256()
    assert spec_with(SEED=1).sha256() != spec.sha256()


def test_schema_accepts_what_is_made(spec_with):
    jsonschema.Draft202012Validator.check_schema(bounds.schema())
    assert valid(spec_with().to_json())


def test_missing_field_is_refused_by_loader_and_schema(spec_with):
    plain = spec_with().to_json()
    for path in paths(plain):
        broken = changed(plain, path, None)
        with pytest.raises(OptionError, match=re.escape(".".join(path))):
            RunSpec.from_json(broken)
        assert not valid(broken), path


def test_unknown_field_is_refused_by_loader_and_schema(spec_with):
    plain = spec_with().to_json()
    for path in [(), *[(name,) for name, inner in plain.items() if isinstance(inner, dict)]]:
        broken = changed(plain, (*path, "extra"), "x")
        with pytest.raises(OptionError, match="unknown run spec field"):
            RunSpec.from_json(broken)
        assert not valid(broken), path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("run",), 1),
        (("workload", "prompts"), True),
        (("workload", "prompts"), "10"),
        (("workload", "datasets"), "needle"),
        (("workload", "datasets"), [1]),
        (("vllm",), []),
        (("vllm", "port"), 1.5),
    ],
)
def test_wrong_type_is_refused_by_loader_and_schema(spec_with, path, value):
    broken = changed(spec_with().to_json(), path, value)
    with pytest.raises(OptionError, match=re.escape(".".join(path))):
        RunSpec.from_json(broken)
    assert not valid(broken)


def test_other_schema_is_refused(spec_with):
    with pytest.raises(OptionError, match="another schema"):
        RunSpec.from_json(changed(spec_with().to_json(), ("schema",), "kvseal.run-spec.v2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ('{"run":true,"run":false}', "duplicate key"), ("[]", "object")],
)
def test_damaged_file_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "run-spec.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        RunSpec.load(path)
    assert str(path) in str(caught.value)


def test_absent_file_is_refused(tmp_path):
    with pytest.raises(OptionError, match="can't be read"):
        RunSpec.load(tmp_path / "none.json")


def test_every_field_is_documented(spec_with):
    """docs/formats/run-spec.md has a row a field, and no row without one."""
    text = (CHECKOUT / "docs/formats/run-spec.md").read_text()
    rows = set(re.findall(r"^\| `([a-z0-9_.]+)` \|", text, re.MULTILINE))
    plain = spec_with().to_json()
    leaves = {
        ".".join(path)
        for path in paths(plain)
        if not isinstance(plain[path[0]], dict) or len(path) == 2
    }
    assert rows == leaves
    assert json.dumps(plain)  # plain JSON values only
