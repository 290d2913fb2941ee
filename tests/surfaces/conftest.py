# SPDX-License-Identifier: Apache-2.0
"""For the tests of what LMCache's parts show: its releases, patched and stock, run for real.

Servers are started once a module. Tests share them and keep out of each other's
way by cache salts and tokens of their own.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lmcache_trees import TREES_VARIABLE, Tree, make_tree, source_of
from stored_case import Case

VERSIONS = ("0.5.4", "0.5.6")
"""Those that kvseal's configuration offers."""
TreeOf = Callable[..., Tree]


@pytest.fixture(scope="session")
def tree_of(tmp_path_factory: pytest.TempPathFactory) -> TreeOf:
    """Return a tree of a release, patched unless told otherwise; made once, skipped if absent."""
    made: dict[tuple[str, bool], Tree] = {}

    def find(version: str, *, patched: bool = True) -> Tree:
        if (version, patched) not in made:
            source = source_of(version)
            if source is None:
                pytest.skip(f"no LMCache {version} at hand; {TREES_VARIABLE} may name trees")
            folder = tmp_path_factory.mktemp(f"lmcache-{version}-{'ours' if patched else 'stock'}")
            made[version, patched] = make_tree(source, version, folder, patched=patched)
        return made[version, patched]

    return find


@pytest.fixture(scope="module", params=VERSIONS)
def tree(request: pytest.FixtureRequest, tree_of: TreeOf) -> Tree:
    """Each release with all edits."""
    return tree_of(request.param)


_cases = itertools.count(1)


@pytest.fixture
def case() -> Iterator[Case]:
    """A tenant and four chunks of tokens."""
    number = next(_cases)
    first = number * 1000
    yield Case(f"tenant-{number}", list(range(first, first + 64)), number)
