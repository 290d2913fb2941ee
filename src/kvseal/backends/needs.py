# SPDX-License-Identifier: Apache-2.0
"""What a backend needs of a machine, and what of it is not there.

A need is looked for, never worked around: what is missing comes back as a
sentence with a remedy. Python packages are looked for in the Python that runs
LMCache, which is not the one that runs kvseal. Called by kvseal.backends.backend.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvseal.errors import PrerequisiteError

# Each part is sought in the folders of the one before it: a plain find_spec of a.b imports a.
# A module that is to load is imported for real, since only that shows a library that it lacks.
_PROBE = """
import importlib, json, sys
from importlib.machinery import PathFinder

def there(name):
    where = None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, where)
        if spec is None:
            return False
        where = spec.submodule_search_locations
    return True

def loads(name):
    try:
        importlib.import_module(name)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""

answers = {}
for name, load in json.loads(sys.argv[1]):
    answers[name] = "" if there(name) else "not installed"
    if load and not answers[name]:
        answers[name] = loads(name)
print("\\n" + json.dumps(answers))
"""


@dataclass(frozen=True)
class Missing:
    """One thing that a backend lacks here, in words."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


@dataclass(frozen=True)
class Module:
    """A module that LMCache's Python must find; with `load`, that must also import."""

    name: str
    remedy: str
    load: bool = False


@dataclass(frozen=True)
class Program:
    """A program on PATH: the first of `names` that is there is used."""

    names: tuple[str, ...]
    remedy: str

    def find(self, python_path: Sequence[Path] = ()) -> str | None:
        """Return its full path, None where no name is on PATH or in `bin` of a package folder."""
        bins = [str(folder / "bin") for folder in python_path]
        folders = os.pathsep.join([*bins, os.environ.get("PATH", os.defpath), "/usr/sbin"])
        found = (shutil.which(name, path=folders) for name in self.names)
        return next((path for path in found if path), None)

    def path(self, python_path: Sequence[Path] = ()) -> str:
        """Return its full path.

        Raises:
            PrerequisiteError: it is not installed.
        """
        found = self.find(python_path)
        if found is None:
            raise PrerequisiteError(
                f"no {' or '.join(self.names)} on PATH", expected="one of them", remedy=self.remedy
            )
        return found


@dataclass(frozen=True)
class Outside:
    """Something that no package brings: a device, a cluster, a cloud service."""

    what: str
    remedy: str


def join_path(folders: Sequence[Path]) -> str:
    """Return folders as a value of PYTHONPATH."""
    return os.pathsep.join(map(str, folders))


Need = Module | Program | Outside


def missing(needs: Iterable[Need], python: str, python_path: Sequence[Path]) -> list[Missing]:
    """Return which of `needs` are not met, for LMCache run by `python`.

    `python_path` are folders that LMCache will have on PYTHONPATH. An `Outside`
    is always missing: nothing here could tell that it is there.

    Raises:
        PrerequisiteError: `python` can't be run.
    """
    needs = list(needs)
    modules = [need for need in needs if isinstance(need, Module)]
    answers = _ask(modules, python, python_path) if modules else {}
    found = []
    for need in needs:
        if isinstance(need, Module):
            if answers[need.name]:
                found.append(Missing(f"module {need.name}: {answers[need.name]}", need.remedy))
        elif isinstance(need, Program):
            if need.find(python_path) is None:
                found.append(
                    Missing(f"program {' or '.join(need.names)}: not on PATH", need.remedy)
                )
        else:
            found.append(Missing(need.what, need.remedy))
    return found


def _ask(modules: list[Module], python: str, python_path: Sequence[Path]) -> dict[str, str]:
    asked = json.dumps([(module.name, module.load) for module in modules])
    env = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    env["PYTHONPATH"] = join_path(python_path)
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, asked],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answers: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        ending = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise PrerequisiteError(
            f"LMCache's Python can't be asked for its modules: {(ending or [''])[-1]}",
            option="python",
            value=python,
            expected="a Python with LMCache",
            remedy="build the engine environment again: `make lmcache-snapkv-build`",
        ) from None
    return answers
