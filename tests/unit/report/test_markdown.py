# SPDX-License-Identifier: Apache-2.0
"""report.md shows every record's text as text."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.report.markdown import escape, markdown
from kvseal.report.run_folder import read_run

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))


def report(tmp_path, events=None):
    return markdown([read_run(build.run_folder(tmp_path / "run", events))])


def test_verdict_first_then_comparison_prompts_and_patches(tmp_path):
    text = report(tmp_path)
    assert text.startswith("# PASS: baseline against SnapKV\n\nThese figures hold")
    assert text.index("output tokens/s") < text.index("## Prompts") < text.index("## Patches")
    assert text.count("\n| 3 |") == 1


def test_every_row_of_a_table_has_the_same_cells(tmp_path):
    events = build.passing_events(build.make_spec())
    next(e for e in events if e["event"] == "answer")["text"] = " a | b\n| c |\r\n"
    for block in report(tmp_path, events).split("\n\n"):
        rows = [row.replace("\\|", "") for row in block.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, block


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>", "\\<script\\>"),
        ("a|b", "a\\|b"),
        ("[x](http://y)", "\\[x\\](http\\://y)"),
        ("`x` *y* _z_", "\\`x\\` \\*y\\* \\_z\\_"),
        ("&lt;", "\\&lt;"),
        ("a\nb", "a\\\\nb"),
    ],
)
def test_escape(text, shown):
    assert escape(text) == shown


def test_a_run_broken_off_at_its_start_has_a_report(tmp_path):
    text = report(tmp_path, build.passing_events(build.make_spec())[:1])
    assert text.startswith("# INCONCLUSIVE")
    assert "## Reasons" in text
