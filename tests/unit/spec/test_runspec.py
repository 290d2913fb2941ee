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
from kvseal.spec.options import WORKFLOWS
from kvseal.spec.runspec import KINDS, CommonSpec, RunSpec, load_spec
from kvseal.workload.matrix import CASES

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


def test_round_trip(any_with, tmp_path):
    spec = any_with()
    (tmp_path / "run-spec.json").write_text(spec.dumps())
    assert load_spec(tmp_path / "run-spec.json") == spec
    assert type(spec).load(tmp_path / "run-spec.json") == spec
    assert CommonSpec.from_json(spec.to_json()).sha256() == spec.sha256()
    assert any_with(SEED=1).sha256() != spec.sha256()


@pytest.mark.parametrize("other", KINDS)
def test_a_spec_of_another_workflow_is_refused_by_name(makers, tmp_path, other):
    kind, path = KINDS[other], tmp_path / "run-spec.json"
    for workflow, make in makers.items():
        if workflow == other:
            continue
        path.write_text(make().dumps())
        with pytest.raises(OptionError, match="another workflow") as caught:
            kind.load(path)
        assert caught.value.value == workflow
        assert caught.value.expected == kind.WORKFLOW
        assert f"make defconfig-{kind.WORKFLOW}-cpu" in caught.value.remedy


@pytest.mark.parametrize("workflow", ["", "kv_reuse", 1, None, []])
def test_an_unknown_workflow_is_refused_by_loader_and_schema(spec_with, workflow):
    broken = {**spec_with().to_json(), "workflow": workflow}
    with pytest.raises(OptionError, match="unknown workflow") as caught:
        CommonSpec.from_json(broken)
    assert caught.value.expected == "lmcache-snapkv or kv-reuse or lmcache-snapkv-matrix"
    assert not valid(broken)


@pytest.mark.parametrize("workflow", KINDS)
def test_sections_of_another_workflow_are_refused_by_loader_and_schema(makers, workflow):
    specs = {name: make().to_json() for name, make in makers.items()}
    own = specs.pop(workflow)
    broken = [
        {**own, section: value}
        for other in specs.values()
        for section, value in other.items()
        if section not in own
    ]
    broken += [{**own, "workflow": name} for name in specs]
    assert len(broken) >= 4
    for plain in broken:
        with pytest.raises(OptionError, match="run spec field"):
            CommonSpec.from_json(plain)
        assert not valid(plain)


def test_codemods_follow_the_spec(makers):
    assert makers["lmcache-snapkv-matrix"]().codemods is None
    assert makers["lmcache-snapkv"]().codemods == WORKFLOWS["lmcache-snapkv"].codemods
    assert makers["kv-reuse"]().codemods == WORKFLOWS["kv-reuse"].codemods
    assert (
        makers["lmcache-snapkv-matrix"](STOCK=True).codemods == makers["lmcache-snapkv"]().codemods
    )


def test_the_spec_kept_with_an_earlier_run_is_still_one():
    """docs/evidence has run specs of before there was a second workflow."""
    path = CHECKOUT / "docs/evidence/h200/run-spec-float16.json"
    spec = RunSpec.load(path)
    assert spec.to_json() == json.loads(path.read_text())


def test_schema_accepts_what_is_made(any_with):
    jsonschema.Draft202012Validator.check_schema(bounds.schema())
    assert valid(any_with().to_json())


def test_missing_field_is_refused_by_loader_and_schema(any_with):
    plain = any_with().to_json()
    for path in paths(plain):
        broken = changed(plain, path, None)
        with pytest.raises(OptionError, match=re.escape(".".join(path))):
            CommonSpec.from_json(broken)
        assert not valid(broken), path


def test_unknown_field_is_refused_by_loader_and_schema(any_with):
    plain = any_with().to_json()
    for path in [(), *[(name,) for name, inner in plain.items() if isinstance(inner, dict)]]:
        broken = changed(plain, (*path, "extra"), "x")
        with pytest.raises(OptionError, match="unknown run spec field"):
            CommonSpec.from_json(broken)
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
        CommonSpec.from_json(broken)
    assert not valid(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reuse_counts", "1,3"),
        ("reuse_counts", [1, "3"]),
        ("reuse_counts", [True]),
        ("reuse_counts", [1.5]),
        ("compare_native", 1),
        ("accept_deviations", "torch"),
        ("fixture", []),
    ],
)
def test_wrong_type_in_a_verification_is_refused(verify_with, name, value):
    broken = changed(verify_with().to_json(), ("verify", name), value)
    with pytest.raises(OptionError, match=f"verify.{name}"):
        CommonSpec.from_json(broken)
    assert not valid(broken)


@pytest.mark.parametrize("counts", [[], [0], [1, 1], [-1]])
def test_schema_knows_what_reuse_counts_are(verify_with, counts):
    plain = verify_with().to_json()
    assert valid(plain)
    assert not valid(changed(plain, ("verify", "reuse_counts"), counts))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backends", "mp"),
        ("backends", ["mp", 1]),
        ("restarts", "both"),
        ("cases", "same-transform"),
        ("identity", True),
        ("mixed_requests", True),
        ("prompt_tokens", "321"),
    ],
)
def test_wrong_type_in_a_matrix_is_refused(matrix_with, name, value):
    broken = changed(matrix_with().to_json(), ("matrix", name), value)
    with pytest.raises(OptionError, match=f"matrix.{name}"):
        CommonSpec.from_json(broken)
    assert not valid(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backends", []),
        ("backends", ["mp", "mp"]),
        ("backends", ["redis"]),
        ("restarts", ["none"]),
        ("cases", ["same-transform", "same-transform"]),
        ("cases", [""]),
        ("cases", ["no case"]),
    ],
)
def test_schema_knows_what_backends_restarts_and_cases_are(matrix_with, name, value):
    plain = matrix_with(CASES=",".join(case.name for case in CASES)).to_json()
    assert valid(plain) and valid(changed(plain, ("matrix", "restarts"), []))
    assert not valid(changed(plain, ("matrix", name), value))


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


def test_every_field_is_documented(makers):
    """docs/formats/run-spec.md has a row a field, and no row without one."""
    text = (CHECKOUT / "docs/formats/run-spec.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \|", text, re.MULTILINE)
    plain = {name: value for make in makers.values() for name, value in make().to_json().items()}
    leaves = {
        ".".join(path)
        for path in paths(plain)
        if not isinstance(plain[path[0]], dict) or len(path) == 2
    }
    assert set(rows) == leaves
    assert len(rows) == len(leaves)
    assert json.dumps(plain)  # plain JSON values only


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=WORKFLOWS)
def test_every_symbol_is_documented_with_its_field(workflow):
    text = (CHECKOUT / "docs/formats/run-spec.md").read_text()
    for option in workflow.options:
        if option.name:
            row = re.search(rf"^\| `{option.field}` \| ([^|]*) \|", text, re.MULTILINE)
            assert row and f"`{option.name}`" in row[1], option.symbol
