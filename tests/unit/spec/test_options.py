# SPDX-License-Identifier: Apache-2.0
"""Kconfig, the table of options and the schema say the same, both ways."""

import kconfiglib
import pytest

from kvseal.spec import bounds
from kvseal.spec.options import OPTIONS, ROOT, TASKS, symbol, symbols_of, wrong
from kvseal.spec.workload_rules import REVISIONS

TYPES = {kconfiglib.BOOL: bool, kconfiglib.INT: int, kconfiglib.STRING: str}


@pytest.fixture(scope="module")
def symbols(kconfig):
    return {item.name: item for item in kconfig.load().unique_defined_syms}


def leaf(field):
    rule = bounds.schema()
    for name in field.split("."):
        rule = rule["properties"][name]
    return rule


def test_each_symbol_is_an_option_and_each_option_a_symbol(symbols):
    assert {option.symbol: option.kind for option in OPTIONS} == {
        name: TYPES[item.orig_type] for name, item in symbols.items()
    }


def test_each_symbol_has_help_and_a_default(symbols):
    for name, item in symbols.items():
        (node,) = item.nodes
        assert node.prompt, name
        assert node.help and len(node.help.split()) >= 8, name
        assert item.defaults, name


def test_nothing_depends_on_more_than_the_workflow(symbols):
    """conf leaves a hidden symbol out of the variables, and absent must not mean no."""
    for name, item in symbols.items():
        expected = "y" if name == ROOT else ROOT
        assert kconfiglib.expr_str(item.direct_dep) == expected, name


def test_no_choice_since_kdevops_reads_a_plugin_twice(kconfig):
    assert not kconfig.load().unique_choices


def test_schema_has_the_ranges_of_kconfig(symbols):
    for option in OPTIONS:
        if option.kind is not int:
            continue
        ((low, high, _),) = symbols[option.symbol].ranges
        rule = leaf(option.field)
        assert (rule["minimum"], rule["maximum"]) == (int(low.name), int(high.name)), option.name


def test_fields_of_options_are_fields_of_the_schema():
    for option in OPTIONS:
        assert leaf(option.field), option.name


def test_tasks_are_options():
    assert symbols_of("workload.datasets").split(", ") == [symbol(t.upper()) for t in TASKS]


def test_default_revision_is_known_with_its_model(symbols):
    value, _ = symbols[f"{ROOT}_MODEL_REVISION"].defaults[0]
    model, _ = symbols[f"{ROOT}_MODEL"].defaults[0]
    assert REVISIONS[value.name] == model.name


def test_errors_name_the_symbol_as_in_config():
    assert f"CONFIG_{ROOT}_SEED = 7" in str(wrong("SEED", "no", 7, "another", "change it"))
    with pytest.raises(KeyError):
        symbol("SEEED")
