# SPDX-License-Identifier: Apache-2.0
"""extra_vars.yaml as it must be: one workflow on, and all of its variables there, each of its type.

A variable that is absent is an error, never false: `conf` leaves out a symbol
whose dependency is off, and a run must not be decided by that. Variables of
others do not matter. Called by kvseal.spec.translate.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from kvseal.errors import OptionError
from kvseal.spec import rules
from kvseal.spec.options import WORKFLOWS, Option, Workflow


def chosen(variables: Mapping[str, Any]) -> Workflow:
    """Return the one workflow that is on.

    Raises:
        OptionError: naming every workflow's symbol, unless exactly one is on.
    """
    roots = [workflow.options[0] for workflow in WORKFLOWS.values()]
    rules.refuse([found for root in roots if (found := _mistake(root, variables)) is not None])
    on = [
        workflow
        for workflow, root in zip(WORKFLOWS.values(), roots, strict=True)
        if variables[root.variable]
    ]
    if len(on) != 1:
        raise OptionError(
            "no workflow is switched on"
            if not on
            else "more than one workflow is switched on, and one configuration is for one of them",
            option=", ".join(f"CONFIG_{root.symbol}" for root in roots),
            value=", ".join("y" if variables[root.variable] else "n" for root in roots),
            expected="y for one of them, n for the others",
            remedy="`make menuconfig`, or start from a profile: "
            + " or ".join(f"`make defconfig-{name}-cpu`" for name in WORKFLOWS),
        )
    return on[0]


def mistakes(variables: Mapping[str, Any], workflow: Workflow) -> list[OptionError]:
    """Return what is absent, unknown or of the wrong type among our variables."""
    # Of all workflows: one root begins another, so a name alone does not tell whose it is.
    known = [option.variable for each in WORKFLOWS.values() for option in each.options]
    prefixes = tuple(each.root.lower() for each in WORKFLOWS.values())
    unknown = [name for name in variables if name.startswith(prefixes) and name not in known]
    found = (_mistake(option, variables) for option in workflow.options)
    return [
        *(_unknown(name, known) for name in unknown),
        *(mistake for mistake in found if mistake is not None),
    ]


def _mistake(option: Option, variables: Mapping[str, Any]) -> OptionError | None:
    if option.variable not in variables:
        return _absent(option)
    if type(variables[option.variable]) is option.kind:
        return None
    expected = {bool: "true or false", int: "an integer", str: "quoted text"}
    return OptionError(
        "variable of the wrong type",
        option=f"CONFIG_{option.symbol}",
        value=variables[option.variable],
        expected=expected[option.kind],
        remedy="let `make` write extra_vars.yaml from .config",
    )


def _absent(option: Option) -> OptionError:
    return OptionError(
        f"variable {option.variable} is absent, and absent is not false",
        option=f"CONFIG_{option.symbol}",
        expected="a value written by Kconfig",
        remedy="`make olddefconfig` fills in symbols that .config lacks",
    )


def _unknown(name: str, known: Collection[str]) -> OptionError:
    near = difflib.get_close_matches(name, known, n=1)
    return OptionError(
        f"unknown variable {name}",
        option=f"CONFIG_{name.upper()}",
        expected=f"for example CONFIG_{near[0].upper()}" if near else "a symbol of Kconfig",
        remedy="correct the name or take the line out",
    )
