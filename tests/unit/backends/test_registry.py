# SPDX-License-Identifier: Apache-2.0
"""The list of backends: every entry says what has to be said of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kvseal
from kvseal.backends import registry
from kvseal.backends.backend import IN_MEMORY, VERSIONS, Backend
from kvseal.errors import OptionError

DOCUMENT = Path(kvseal.__file__).parents[2] / "docs/backends.md"


def test_names_are_unique_and_known() -> None:
    assert len(set(registry.NAMES)) == len(registry.BACKENDS)
    for backend in registry.BACKENDS:
        assert registry.backend(backend.name) is backend


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        registry.backend("memcached")
    assert "fs_native" in str(caught.value)


@pytest.mark.parametrize("backend", registry.BACKENDS, ids=lambda backend: backend.name)
class TestEach:
    def test_its_file_is_called_as_it_is(self, backend: Backend) -> None:
        assert type(backend).__module__ == f"kvseal.backends.{backend.name}"

    def test_it_says_where_its_keys_are_made(self, backend: Backend) -> None:
        for version in VERSIONS:
            where = backend.key_text(version)
            assert where == IN_MEMORY or (where.file.endswith(".py") and where.symbol)

    def test_what_lasts_fits_together(self, backend: Backend) -> None:
        assert (backend.lasts_over_own is None) is (backend.own_server == "")
        if backend.key_text("0.5.6") == IN_MEMORY and not backend.apart:
            assert not backend.lasts_over_lmcache

    def test_every_refusal_has_a_reason_and_a_remedy(self, backend: Backend) -> None:
        for version in VERSIONS:
            refusal = backend.refused(version)
            assert refusal is None or (refusal.reason and refusal.remedy)
        assert set(backend.refusals) <= set(VERSIONS)

    def test_an_lmcache_that_was_not_read_is_refused(self, backend: Backend) -> None:
        refusal = backend.refused("0.6.0")
        assert refusal is not None and "not read" in refusal.reason

    def test_it_stands_in_the_document(self, backend: Backend) -> None:
        text = DOCUMENT.read_text(encoding="utf-8")
        rows = re.findall(r"^\| `([a-z0-9_]+)` (?:\|[^|]*){5}\|$", text, re.M)
        assert rows.count(backend.name) == 1


@pytest.mark.parametrize(
    ("name", "version", "salted", "refused"),
    [
        ("fs", "0.5.4", True, False),
        ("fs_native", "0.5.4", True, True),
        ("fs_native", "0.5.4", False, False),
        ("fs_native", "0.5.5", True, True),
        ("fs_native", "0.5.6", True, False),
        ("nixl_store_dynamic", "0.5.4", True, True),
        ("nixl_store_dynamic", "0.5.5", True, False),
        ("hf3fs", "0.5.4", False, True),
        ("hf3fs", "0.5.6", True, False),
    ],
)
def test_what_is_refused(name: str, version: str, salted: bool, refused: bool) -> None:
    assert (registry.backend(name).refused(version, salted=salted) is not None) is refused
