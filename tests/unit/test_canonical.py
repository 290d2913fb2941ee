# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON against RFC 8785, and what is refused beyond it.

The RFC's number vectors are floats, which have no form here; its vectors for
order and escapes (section 3.2.2 and 3.2.3, appendix B's strings) are held
exactly.
"""

import hashlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.canonical import (
    MAX_SAFE_INTEGER,
    canonical_bytes,
    digest,
    loads_strict,
    sha256_hex,
    token_ids_sha256,
)
from kvseal.errors import EvidenceError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def test_rfc_8785_order_of_keys() -> None:
    # Section 3.2.3: keys are ordered by UTF-16 code units.
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical_bytes(value)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


def test_rfc_8785_escapes_and_literals() -> None:
    # Section 3.2.2's example without its numbers; section 3.2.4's bytes for the text.
    value = {
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }
    expected = (
        b'{"literals":[null,true,false],"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_bytes(value) == expected
    assert canonical_bytes("\b\t\n\f\r\u001f\u007f") == b'"\\b\\t\\n\\f\\r\\u001f\x7f"'


@given(VALUES)
def test_round_trip_and_independence_of_insertion_order(value: object) -> None:
    data = canonical_bytes(value)
    assert loads_strict(data) == value
    assert canonical_bytes(loads_strict(data)) == data
    assert canonical_bytes(_reversed(value)) == data
    assert digest(value) == hashlib.sha256(data).hexdigest() == sha256_hex(data)


def _reversed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _reversed(item) for key, item in reversed(value.items())}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


@given(VALUES, VALUES)
def test_different_values_have_different_bytes(first: object, second: object) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (canonical_bytes(first) == canonical_bytes(second)) == same


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        0.5,
        float("nan"),
        float("inf"),
        {"a": [1.5]},
        2**53,
        -(2**53),
        {1: "a"},
        {None: 1},
        b"bytes",
        {"a": {1, 2}},
        pytest.param(object(), id="object"),
        "\ud800",
        {"\udfff": 1},
    ],
    ids=repr,
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(EvidenceError):
        canonical_bytes(value)


def test_largest_integers_and_booleans() -> None:
    assert canonical_bytes([MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, True, 0]) == (
        b"[9007199254740991,-9007199254740991,true,0]"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"b":{"a":1,"a":1}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "",
        "{",
        '{"a":}',
        "[1,]",
        "\ufeff{}",
        b"\xff",
        "[" * 100_000,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_not_strict_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(EvidenceError):
        loads_strict(text)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_token_ids_are_little_endian_uint32(tokens: list[int]) -> None:
    data = struct.pack(f"<{len(tokens)}I", *tokens)
    assert token_ids_sha256(tokens) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("token", [-1, 2**32, 1.0, "1", None])
def test_what_is_no_token_id_is_refused(token: object) -> None:
    with pytest.raises(EvidenceError):
        token_ids_sha256([token])  # type: ignore[list-item]
