# SPDX-License-Identifier: Apache-2.0
"""The copies of real LMCaches that the tests of codemods make, for fault tests as well."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[1] / "codemods/conftest.py"
_SPEC = importlib.util.spec_from_file_location("kvseal_codemods_conftest", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
codemods = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = codemods

try:
    _SPEC.loader.exec_module(codemods)
except ImportError as error:  # no LibCST: the tests say so and are skipped
    MISSING = str(error)
else:
    MISSING = ""
    compiled, lmcache = codemods.compiled, codemods.lmcache
