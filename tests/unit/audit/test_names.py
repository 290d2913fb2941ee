# SPDX-License-Identifier: Apache-2.0
"""No salt and no control character is shown that was not asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.audit.index import salt_sha256
from kvseal.audit.names import MAX_SHOWN, shown_name

DIGEST = f"sha256:{salt_sha256('secret')[:12]}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("m@0x01000100@0@aabb.data", "m@0x01000100@0@aabb.data"),
        ("m@0x01000100@0@aabb@secret.data", f"m@0x01000100@0@aabb@{DIGEST}.data"),
        ("m@0x01000100@0@aabb@secret.data.tmp", f"m@0x01000100@0@aabb@{DIGEST}.data.tmp"),
        ("m@01000100@0@aabb@secret", f"m@01000100@0@aabb@{DIGEST}"),
        ("m@0x01000100@0@aabb@secret@secret.tmp", f"m@0x01000100@0@aabb@{DIGEST}@{DIGEST}.tmp"),
        ("m@secret", f"m@{DIGEST}"),
        ("plain", "plain"),
    ],
)
def test_a_salt_is_shown_as_its_digest(name: str, shown: str) -> None:
    assert shown_name(name, show_salts=False) == shown
    assert shown_name(name, show_salts=True) == name


def test_a_salt_of_hex_digits_is_hidden_too() -> None:
    assert "beef" not in shown_name("m@01000100@0@aabb@beef", show_salts=False)


@given(name=st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_every_name_can_be_printed(name: str) -> None:
    for show_salts in (True, False):
        shown = shown_name(name, show_salts=show_salts)
        assert shown.isprintable()
        assert len(shown) <= MAX_SHOWN
        shown.encode("utf-8")


def test_control_characters_and_odd_bytes_are_spelt_out() -> None:
    assert shown_name("a\x1b[2J\udcff", show_salts=False) == r"a\x1b[2J\xff"
