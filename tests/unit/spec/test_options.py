# SPDX-License-Identifier: Apache-2.0
"""Kconfig, the tables of options and the schema say the same, both ways."""

import kconfiglib
import pytest

from kvseal.spec import bounds
from kvseal.spec.model_rules import REVISIONS
from kvseal.spec.options import (
    BACKENDS,
    KV_REUSE,
    LMCACHE_SNAPKV,
    LMCACHE_SNAPKV_MATRIX,
    NO_IDENTITY,
    RESTARTS,
    TASKS,
    VARIANT,
    WORKFLOWS,
    codemods_of,
    symbols_of,
)
from kvseal.spec.runspec import KINDS
from kvseal.workload import matrix

TYPES = {kconfiglib.BOOL: bool, kconfiglib.INT: int, kconfiglib.STRING: str}
ALL = [option for workflow in WORKFLOWS.values() for option in workflow.options]


@pytest.fixture(scope="module")
def symbols(kconfig):
    return {item.name: item for item in kconfig.load().unique_defined_syms}


@pytest.fixture(params=WORKFLOWS.values(), ids=WORKFLOWS)
def workflow(request):
    return request.param


def leaf(field):
    rule = bounds.schema()
    for name in field.split("."):
        rule = rule["properties"][name]
    return rule


def test_each_symbol_is_an_option_and_each_option_a_symbol(symbols):
    assert {option.symbol: option.kind for option in ALL} == {
        name: TYPES[item.orig_type] for name, item in symbols.items()
    }
    assert len({option.symbol for option in ALL}) == len(ALL)


def test_workflows_are_those_of_run_specs():
    assert set(WORKFLOWS) == set(KINDS) == set(leaf("workflow")["enum"])
    assert all(name == workflow.name for name, workflow in WORKFLOWS.items())


def test_each_symbol_has_help_and_a_default(symbols):
    for name, item in symbols.items():
        (node,) = item.nodes
        assert node.prompt, name
        assert node.help and len(node.help.split()) >= 8, name
        assert "$(" not in node.help, name  # Kconfig expands nothing there
        assert item.defaults, name


def test_nothing_depends_on_more_than_the_workflow(symbols):
    """conf leaves a hidden symbol out of the variables, and absent must not mean no."""
    for option in ALL:
        expected = "y" if not option.name else option.root
        dependency = symbols[option.symbol].direct_dep
        assert kconfiglib.expr_str(dependency) == expected, option.symbol


def test_no_choice_since_kdevops_reads_a_plugin_twice(kconfig):
    assert not kconfig.load().unique_choices


def test_schema_has_the_ranges_of_kconfig(symbols):
    for option in ALL:
        if option.kind is not int:
            continue
        ((low, high, _),) = symbols[option.symbol].ranges
        rule = leaf(option.field)
        assert (rule["minimum"], rule["maximum"]) == (int(low.name), int(high.name)), option.name


def test_fields_of_options_are_fields_of_the_schema():
    for option in ALL:
        assert leaf(option.field), option.name


def test_folders_are_named_after_the_workflow(symbols, workflow):
    for name in ("WORK_ROOT", "RESULTS_ROOT"):
        value, _ = symbols[f"{workflow.root}_{name}"].defaults[0]
        assert value.name.split("/")[1:] == [workflow.name]


def test_tasks_are_options():
    names = symbols_of("workload.datasets", "lmcache-snapkv").split(", ")
    assert names == [LMCACHE_SNAPKV.symbol(task.upper()) for task in TASKS]


def test_backends_and_restarts_are_those_of_the_cases():
    """The cases are a layer above, so the options repeat their names."""
    assert BACKENDS == matrix.BACKENDS
    assert ("none", *RESTARTS) == matrix.AFTERS
    rule = bounds.schema()["properties"]["matrix"]["properties"]
    assert rule["backends"]["items"]["enum"] == list(BACKENDS)
    assert rule["restarts"]["items"]["enum"] == list(RESTARTS)
    assert rule["identity"]["enum"] == [VARIANT, NO_IDENTITY]
    for field, names in (("backends", BACKENDS), ("restarts", RESTARTS)):
        prefix = field[:-1].upper()
        assert symbols_of(f"matrix.{field}", "lmcache-snapkv-matrix").split(", ") == [
            LMCACHE_SNAPKV_MATRIX.symbol(f"{prefix}_{name.upper()}") for name in names
        ]


def test_a_root_that_begins_another_keeps_its_symbols_apart():
    """lmcache-snapkv's begins lmcache-snapkv-matrix's; no name is of both."""
    outer, inner = LMCACHE_SNAPKV, LMCACHE_SNAPKV_MATRIX
    assert inner.root.startswith(f"{outer.root}_")
    assert not [option for option in outer.options if option.symbol.startswith(inner.root)]


def test_the_same_field_has_a_symbol_in_each_workflow():
    assert symbols_of("vllm.dtype", "kv-reuse") == f"CONFIG_{KV_REUSE.root}_DTYPE"
    assert symbols_of("vllm.dtype", "lmcache-snapkv") == f"CONFIG_{LMCACHE_SNAPKV.root}_DTYPE"
    assert symbols_of("vllm.port", "kv-reuse") == ""


def test_default_revision_is_known_with_its_model(symbols, workflow):
    value, _ = symbols[f"{workflow.root}_MODEL_REVISION"].defaults[0]
    model, _ = symbols[f"{workflow.root}_MODEL"].defaults[0]
    assert REVISIONS[value.name] == model.name


def test_errors_name_the_symbol_as_in_config(workflow):
    error = workflow.wrong("SEED", "no", 7, "another", "change it")
    assert f"CONFIG_{workflow.root}_SEED = 7" in str(error)
    with pytest.raises(KeyError):
        workflow.symbol("SEEED")


def test_codemods_of_a_workflow_exist():
    libcst_free = {"vllm_distribution_name", "vllm_query_export"}
    assert KV_REUSE.codemods is not None and set(KV_REUSE.codemods) < libcst_free
    assert LMCACHE_SNAPKV.codemods is not None and set(LMCACHE_SNAPKV.codemods) == libcst_free


def test_codemods_are_the_workflow_s_and_the_comparison_s_without_identity():
    assert codemods_of("lmcache-snapkv-matrix") is None
    assert codemods_of("lmcache-snapkv-matrix", VARIANT) is None
    assert codemods_of("lmcache-snapkv-matrix", NO_IDENTITY) == LMCACHE_SNAPKV.codemods
    assert codemods_of("lmcache-snapkv") == LMCACHE_SNAPKV.codemods
    assert codemods_of("kv-reuse") == KV_REUSE.codemods
    with pytest.raises(KeyError):
        codemods_of("lmcache")
