# SPDX-License-Identifier: Apache-2.0
"""What tests of several packages need."""

from __future__ import annotations

import types

import pytest

from kvseal.codemods.added import source_of


@pytest.fixture
def transform_index() -> types.ModuleType:
    """The module that `lmcache_variant_index` adds to LMCache, without an LMCache around it."""
    theirs, ours = "lmcache.v1.transform_index_store", "kvseal.codemods.added.transform_index_store"
    source = source_of("transform_index").decode()
    assert source.count(f"from {theirs} import") == 1
    module = types.ModuleType("transform_index")
    exec(source.replace(theirs, ours), module.__dict__)  # noqa: S102 - our own source
    return module
