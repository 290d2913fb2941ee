# SPDX-License-Identifier: Apache-2.0
"""docs/formats names every event, field and reason code that there is."""

from pathlib import Path

import pytest

from kvseal.checkers.matrix import REASONS as MATRIX_REASONS
from kvseal.checkers.matrix import Outcome
from kvseal.checkers.reasons import REASONS
from kvseal.checkers.verification.reasons import REASONS as VERIFICATION_REASONS
from kvseal.records.events import EVENTS
from kvseal.records.matrix import EVENTS as MATRIX_EVENTS
from kvseal.records.schemas import load_schema
from kvseal.records.verification import EVENTS as VERIFICATION_EVENTS
from kvseal.report.matrix_grid import LEGEND

FORMATS = Path(__file__).parents[3] / "docs" / "formats"


@pytest.mark.parametrize("event", EVENTS)
def test_history_md_names_each_event_and_what_is_not_plain_from_it(event):
    text = (FORMATS / "history.md").read_text(encoding="utf-8")
    assert f"| `{event}` |" in text
    digests = {"retained_positions_sha256", "retained_token_ids_sha256"}
    for field in set(EVENTS[event]) - digests:
        assert f"`{field}`" in text


def test_result_md_names_each_reason_code():
    text = (FORMATS / "result.md").read_text(encoding="utf-8")
    for code in REASONS:
        arm, _, name = code.partition(".")
        assert f"`{name if arm in ('baseline', 'snapkv') else code}`" in text, code


def test_result_md_names_each_figure():
    text = (FORMATS / "result.md").read_text(encoding="utf-8")
    arm = load_schema("compare-result.v1")["$defs"]["baseline_arm"]["properties"]
    for name in set(arm) - {"output_tokens", "total_seconds"}:
        assert name in text


def test_verification_md_names_each_event_field_and_code():
    text = (FORMATS / "verification.md").read_text(encoding="utf-8")
    for event, fields in VERIFICATION_EVENTS.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{event}` |")]
        for field in fields:
            assert f"`{field}`" in row, (event, field)
    for code in VERIFICATION_REASONS:
        assert f"`{code}`" in text, code


def test_verification_md_names_each_field_of_the_report():
    text = (FORMATS / "verification.md").read_text(encoding="utf-8")
    schema = load_schema("efim.kv-reuse-verification.v1")
    own = set(schema["properties"]) - {"schema", "created_at", "kvseal_version"}
    difference = set(schema["$defs"]["difference"]["properties"])
    target = set(schema["properties"]["control"]["properties"])
    for field in own | difference | target:
        assert f"`{field}`" in text or f"`{field}[]`" in text, field


def test_matrix_md_names_each_event_field_and_code():
    text = (FORMATS / "matrix.md").read_text(encoding="utf-8")
    history = text.partition("## What a step must come to")[0].splitlines()
    for event, fields in MATRIX_EVENTS.items():
        (row,) = [line for line in history if line.startswith(f"| `{event}` |")]
        for field in fields:
            assert f"`{field}`" in row, (event, field)
    for code, (outcome, _) in MATRIX_REASONS.items():
        lines = [line for line in text.splitlines() if f"`{code}`" in line]
        assert lines, code
        fails = outcome is not Outcome.INCONCLUSIVE
        assert any("FAIL" in line for line in lines) == fails, code


def test_matrix_md_names_each_field_of_the_result_and_each_letter():
    text = (FORMATS / "matrix.md").read_text(encoding="utf-8")
    schema = load_schema("matrix-result.v1")
    names = set(schema["properties"]) | set(schema["properties"]["counts"]["properties"])
    names |= set(schema["properties"]["mixed"]["properties"])
    for part in ("row", "cell"):
        names |= set(schema["$defs"][part]["properties"])
    for part in ("reasons", "artifacts", "not_run"):
        names |= set(schema["properties"][part]["items"]["properties"])
    for step in ("ask", "act"):
        names |= set(schema["$defs"][step]["properties"])
    for field in names - {"schema"}:
        assert f"`{field}`" in text or f"`{field}[]`" in text, field
    for mark, _ in LEGEND:
        assert f"`{mark}`" in text
