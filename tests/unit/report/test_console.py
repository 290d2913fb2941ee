# SPDX-License-Identifier: Apache-2.0
"""The terminal summary."""

import runpy
from pathlib import Path
from types import SimpleNamespace

from kvseal.checkers.reasons import Reason
from kvseal.report.console import MAX_REASONS, printable, summary, table

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
SPEC = build.make_spec()
RESULT = build.result(SPEC, build.history(build.passing_events(SPEC)))


def test_verdict_comes_first_and_figures_follow():
    lines = summary(RESULT, "run-1").splitlines()
    assert lines[0] == "PASS  run-1"
    assert any(line.startswith("output tokens/s") and "+29.6 %" in line for line in lines)
    assert "reason" not in summary(RESULT, "run-1")


def test_many_reasons_are_cut_and_counted():
    reasons = [Reason("snapkv.hit_missing", "x", n, "snapkv").to_json() for n in range(20)]
    text = summary(RESULT | {"verdict": "INCONCLUSIVE", "reasons": reasons}, "r")
    assert text.count("snapkv.hit_missing") == MAX_REASONS
    assert text.endswith("… and 12 more (--json shows all)")


def test_columns_line_up():
    assert table([("", "a"), ("long", "1")]) == ["      a", "long  1"]


def test_control_characters_are_shown_not_sent():
    assert printable("a\x1b[2J\nü\u202e") == "a\\x1b[2J\\nü\\u202e"
