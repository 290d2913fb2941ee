# SPDX-License-Identifier: Apache-2.0
"""Variables as the CPU profiles give them, and a place to translate them in."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kvseal.spec.options import KV_REUSE, LMCACHE_SNAPKV, LMCACHE_SNAPKV_MATRIX, WORKFLOWS, Workflow
from kvseal.spec.runspec import AnySpec, MatrixSpec, RunSpec, VerifySpec
from kvseal.spec.translate import Surroundings, translate
from kvseal.workload.matrix import CASES

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def kconfig() -> ModuleType:
    """scripts/kconfig.py as a module."""
    place = importlib.util.spec_from_file_location(
        "kconfig_script", CHECKOUT / "scripts/kconfig.py"
    )
    module = importlib.util.module_from_spec(place)
    sys.modules[place.name] = module  # dataclasses look their module up there
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def profile(kconfig: ModuleType) -> Callable[[str], dict[str, Any]]:
    """Return a function from a profile's name to its variables."""

    def variables(name: str) -> dict[str, Any]:
        kconf = kconfig.load()
        kconfig.apply(kconf, kconfig.read(CHECKOUT / "defconfigs" / name))
        return yaml.safe_load(kconfig.variables(kconf))

    return variables


@pytest.fixture
def around() -> Surroundings:
    return Surroundings(
        checkout=CHECKOUT,
        python="3.11",
        cache=Path("/cache"),
        archive=Path("/checkout/build/kvseal.pyz"),
        archive_sha256="a" * 64,
        cases=tuple(case.name for case in CASES),
    )


@pytest.fixture(scope="session")
def cpu_variables(profile) -> dict[str, Any]:
    return profile("lmcache-snapkv-cpu")


@pytest.fixture(scope="session")
def verify_variables(profile) -> dict[str, Any]:
    return profile("kv-reuse-cpu")


@pytest.fixture(scope="session")
def matrix_variables(profile) -> dict[str, Any]:
    return profile("lmcache-snapkv-matrix-cpu")


def maker(
    workflow: Workflow, variables: dict[str, Any], around: Surroundings
) -> Callable[..., AnySpec]:
    def make(**changes: Any) -> AnySpec:
        changed = copy.deepcopy(variables)
        for name, value in changes.items():
            changed[f"{workflow.root}_{name}".lower()] = value
        return translate(changed, around)

    return make


@pytest.fixture
def spec_with(cpu_variables, around) -> Callable[..., RunSpec]:
    """Return a function that translates the comparison's CPU profile, some options changed."""
    return maker(LMCACHE_SNAPKV, cpu_variables, around)


@pytest.fixture
def verify_with(verify_variables, around) -> Callable[..., VerifySpec]:
    """Return a function that translates the verifier's CPU profile, some options changed."""
    return maker(KV_REUSE, verify_variables, around)


@pytest.fixture
def matrix_with(matrix_variables, around) -> Callable[..., MatrixSpec]:
    """Return a function that translates the matrix's CPU profile, some options changed."""
    return maker(LMCACHE_SNAPKV_MATRIX, matrix_variables, around)


@pytest.fixture
def makers(spec_with, verify_with, matrix_with) -> dict[str, Callable[..., AnySpec]]:
    """All of these, by the workflow's name."""
    return {
        "lmcache-snapkv": spec_with,
        "kv-reuse": verify_with,
        "lmcache-snapkv-matrix": matrix_with,
    }


@pytest.fixture(params=WORKFLOWS)
def any_with(request, makers) -> Callable[..., AnySpec]:
    """One of `makers` in turn, for what holds in every workflow."""
    return makers[request.param]
