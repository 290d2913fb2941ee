# SPDX-License-Identifier: Apache-2.0
"""The scripts as modules; they are files of a checkout and no package."""

import importlib.util
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]


def load(name):
    place = importlib.util.spec_from_file_location(
        f"{name}_script", CHECKOUT / f"scripts/{name}.py"
    )
    module = importlib.util.module_from_spec(place)
    sys.modules[place.name] = module  # dataclasses look their module up there
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def checkout():
    return CHECKOUT


@pytest.fixture(scope="session")
def kconfig():
    return load("kconfig")


@pytest.fixture
def controller(monkeypatch):
    # It puts src/ on the path and stops the writing of bytecode; both end with the test.
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    return load("controller")
