# SPDX-License-Identifier: Apache-2.0
"""Rules of the roles that no linter knows: every value from the run spec, none made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (CHECKOUT / "roles").iterdir() if path.is_dir())
PLAY = yaml.safe_load((CHECKOUT / "playbooks" / "lmcache-snapkv.yml").read_text())[0]
VARIABLES = yaml.safe_load((CHECKOUT / "playbooks" / "vars" / "lmcache-snapkv.yml").read_text())


def arguments(role: Path) -> dict[str, dict[str, Any]]:
    """Return entry point → options."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    return {entry: spec["options"] for entry, spec in specs.items()}


def tasks(role: Path) -> list[Path]:
    return sorted((role / "tasks").glob("*.yml"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_arguments_are_required_and_named_after_the_role(role: Path) -> None:
    for options in arguments(role).values():
        for name, option in options.items():
            assert name.startswith(f"{role.name}_")
            assert option["required"] is True
            assert "default" not in option
    assert not (role / "defaults").exists()


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_argument_is_given_and_used(role: Path) -> None:
    text = "".join(path.read_text() for path in tasks(role))
    given = {name for name in VARIABLES if name.startswith(f"{role.name}_")}
    declared = set().union(*arguments(role).values())
    assert declared <= given
    assert declared == {name for name in declared if name in text}


def test_every_variable_is_of_a_role_or_of_the_play() -> None:
    declared = set().union(*(set().union(*arguments(role).values()) for role in ROLES))
    play = (CHECKOUT / "playbooks" / "lmcache-snapkv.yml").read_text()
    values = json.dumps(VARIABLES)
    for name in VARIABLES:
        assert name in declared or re.search(
            rf"\b{name}\b", play + values.replace(f'"{name}":', "")
        )


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_tasks_decide_nothing_and_stay_short(role: Path) -> None:
    for path in tasks(role):
        text = path.read_text()
        assert "default(" not in text, path
        assert "kvseal_spec." not in text, f"{path}: a role knows no run spec"
        assert len(text.splitlines()) <= 90, path


def test_every_entry_point_of_the_play_checks_its_arguments() -> None:
    for task in PLAY["tasks"]:
        include = task.get("ansible.builtin.include_role")
        if include is not None:
            role = CHECKOUT / "roles" / include["name"]
            assert include.get("tasks_from", "main") in arguments(role), include


def test_stages_of_make_are_tags_of_the_play() -> None:
    make = (CHECKOUT / "workflows" / "lmcache_snapkv" / "Makefile").read_text()
    found = re.search(r"^STAGES := (.*)$", make, re.MULTILINE)
    assert found is not None
    tags: set[str] = set()
    for task in PLAY["tasks"]:
        tags |= {task["tags"]} if isinstance(task["tags"], str) else set(task["tags"])
    assert {stage.replace("-", "_") for stage in found[1].split()} == tags - {"never"}
