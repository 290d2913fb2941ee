# SPDX-License-Identifier: Apache-2.0
"""The table of events, and its own small check against the jsonschema package."""

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.records import matrix, verification
from kvseal.records.events import EVENTS
from kvseal.records.fields import fits

SCHEMAS = {f"{event}.{name}": schema for table in (matrix.EVENTS, verification.EVENTS, EVENTS)
           for event, fields in table.items() for name, schema in fields.items()}  # fmt: skip
SHAPES = {str(schema): schema for schema in SCHEMAS.values()}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3)
    | st.text(max_size=3)
    | st.sampled_from(["baseline", "snapkv", "a" * 64, "A" * 64, "a" * 63, "a" * 64 + "\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@pytest.mark.parametrize("schema", SHAPES.values(), ids=SHAPES)
@given(value=values)
def test_fits_agrees_with_jsonschema(schema, value):
    allowed = jsonschema.Draft202012Validator(schema).is_valid(value)
    if fits(value, schema) == allowed:
        return
    # JSON Schema takes 1.0 for an integer and lets a pattern end before a newline; we don't.
    parts = value if isinstance(value, list) else [value]
    assert allowed
    assert any(isinstance(part, float) or part == "a" * 64 + "\n" for part in parts)


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("answer.hit_tokens_server", None, True),
        ("answer.hit_tokens_server", 0, True),
        ("answer.hit_tokens_server", -1, False),
        ("answer.expected_hit_tokens", None, False),
        ("answer.expected_hit_tokens", True, False),
        ("answer.arm", "control", False),
        ("answer.ttft_seconds", "1", False),
        ("prompt.prompt_token_ids_sha256", "a" * 64, True),
        ("prompt.prompt_token_ids_sha256", "A" * 64, False),
        ("transform.retained_positions", [0, 1], True),
        ("transform.retained_positions", [0, None], False),
    ],
)
def test_a_field_takes_what_it_must_and_nothing_else(field, value, right):
    assert fits(value, SCHEMAS[field]) is right
