# SPDX-License-Identifier: Apache-2.0
"""Rules of the roles that no linter knows: every value from the run spec, none made up."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvseal.spec.options import WORKFLOWS

CHECKOUT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (CHECKOUT / "roles").iterdir() if path.is_dir())
PLAYBOOKS = CHECKOUT / "playbooks"


def resolved(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tasks with those of imported files in the place of the import."""
    found: list[dict[str, Any]] = []
    for entry in entries:
        file = entry.get("ansible.builtin.import_tasks")
        found += resolved(yaml.safe_load((PLAYBOOKS / file).read_text())) if file else [entry]
    return found


@dataclasses.dataclass(frozen=True)
class Play:
    """A workflow's play with what it imports, and its variables."""

    workflow: str

    @property
    def text(self) -> str:
        shared = [path.read_text() for path in sorted((PLAYBOOKS / "tasks").glob("*.yml"))]
        return "".join([(PLAYBOOKS / f"{self.workflow}.yml").read_text(), *shared])

    @property
    def tasks(self) -> list[dict[str, Any]]:
        (play,) = yaml.safe_load((PLAYBOOKS / f"{self.workflow}.yml").read_text())
        return resolved(play["tasks"])

    @property
    def variables(self) -> dict[str, Any]:
        (play,) = yaml.safe_load((PLAYBOOKS / f"{self.workflow}.yml").read_text())
        files = [yaml.safe_load((PLAYBOOKS / file).read_text()) for file in play["vars_files"]]
        assert len({name for file in files for name in file}) == sum(map(len, files))
        return {name: value for file in files for name, value in file.items()}


@pytest.fixture(params=WORKFLOWS)
def play(request: pytest.FixtureRequest) -> Play:
    return Play(request.param)


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
def test_every_argument_is_given_and_used(role: Path, play: Play) -> None:
    text = "".join(path.read_text() for path in tasks(role))
    given = {name for name in play.variables if name.startswith(f"{role.name}_")}
    declared = set().union(*arguments(role).values())
    assert declared <= given
    assert declared == {name for name in declared if name in text}


def test_every_variable_is_of_a_role_or_of_the_play(play: Play) -> None:
    declared = set().union(*(set().union(*arguments(role).values()) for role in ROLES))
    values = json.dumps(play.variables)
    for name in play.variables:
        assert name in declared or re.search(
            rf"\b{name}\b", play.text + values.replace(f'"{name}":', "")
        )


def test_variables_say_which_workflow_they_are_of(play: Play) -> None:
    assert play.variables["kvseal_workflow"] == play.workflow


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_tasks_decide_nothing_and_stay_short(role: Path) -> None:
    for path in tasks(role):
        text = path.read_text()
        assert "default(" not in text, path
        assert "kvseal_spec." not in text, f"{path}: a role knows no run spec"
        assert len(text.splitlines()) <= 90, path


def test_no_role_and_no_shared_task_names_a_workflow() -> None:
    shared = [path for role in ROLES for path in tasks(role)]
    for path in [*shared, *(PLAYBOOKS / "tasks").glob("*.yml")]:
        assert not re.search(r"WORKFLOW_KNLP|lmcache-snapkv|kv-reuse", path.read_text()), path


def test_every_entry_point_of_the_play_checks_its_arguments(play: Play) -> None:
    for task in play.tasks:
        include = task.get("ansible.builtin.include_role")
        if include is not None:
            role = CHECKOUT / "roles" / include["name"]
            assert include.get("tasks_from", "main") in arguments(role), include


def test_stages_of_make_are_tags_of_the_play(play: Play) -> None:
    room = CHECKOUT / "workflows" / play.workflow.replace("-", "_")
    found = re.search(r"^[A-Z_]+_STAGES := (.*)$", (room / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    tags: set[str] = set()
    for task in play.tasks:
        tags |= {task["tags"]} if isinstance(task["tags"], str) else set(task["tags"])
    assert {stage.replace("-", "_") for stage in found[1].split()} == tags - {"never"}
