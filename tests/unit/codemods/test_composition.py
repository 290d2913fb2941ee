# SPDX-License-Identifier: Apache-2.0
"""All LMCache codemods on one LMCache: edits of the same file compose."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.registry import CODEMODS

if TYPE_CHECKING:
    from conftest import LMCacheCopy

LMCACHE = [codemod for codemod in CODEMODS if "lmcache" in codemod.versions]


def test_all_apply_together_and_revert_to_the_bytes(
    lmcache: LMCacheCopy, snapshot: Callable[[Environment], dict[str, bytes]]
) -> None:
    lmcache.apply([])
    original = snapshot(lmcache.environment)
    lmcache.apply(LMCACHE)
    patched = snapshot(lmcache.environment)
    changed = [path for path, data in patched.items() if original.get(path) != data]
    assert len(changed) > len(LMCACHE)
    for path in changed:
        ast.parse(patched[path], path)
    patchset.revert(lmcache.environment, LMCACHE)
    assert snapshot(lmcache.environment) == original
