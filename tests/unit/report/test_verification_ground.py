# SPDX-License-Identifier: Apache-2.0
"""Contract and deviations in words: versions and digests, never raw JSON of a package."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.report.verification import console, html, markdown
from kvseal.report.verification_ground import changed_file_rows, contract_lines

CHECKERS = Path(__file__).parents[1] / "checkers" / "verification"
build = SimpleNamespace(**runpy.run_path(str(CHECKERS / "builder.py")))
TORCH = {"what": "torch", "expected": "2.13.0", "found": "2.11.0"}


def package(compiled=2, others=(), missing=0, built_from=None):
    names = {f"vllm/n/_C{number}.abi3.so": str(number) * 64 for number in range(compiled)}
    return {
        "what": "vllm-files",
        "expected": "vllm 0.28.0 as published",
        "found": {
            "name": "vllm", "version": "0.28.0", "recorded_files": 2941,
            "changed_files": compiled + len(others) - missing, "missing_files": missing,
            "changed_sha256": "f" * 64, "changed_compiled": names, "changed_some": list(others),
            "built_from": built_from,
        },
    }  # fmt: skip


def report(*deviations, accepted=("torch", "vllm-files"), **request):
    events = build.passing_events(accepted_deviations=list(accepted), **request)
    events[0]["contract"]["deviations"] = list(deviations)
    return build.report(events)


def test_without_deviations_the_contract_stands_alone():
    assert contract_lines(report()) == ["evidence contract strict: a <b>GPU</b>"]
    assert contract_lines(build.report([])) == ["evidence contract: unknown"]


@pytest.mark.parametrize(
    ("deviation", "line"),
    [
        (TORCH, "torch 2.11.0 where 2.13.0 is pinned"),
        (TORCH | {"found": None}, "torch is not installed where 2.13.0 is pinned"),
        (
            package(2),
            "vllm 0.28.0: 2 of 2941 files changed, all compiled: _C0.abi3.so 000000000000… and "
            "_C1.abi3.so 111111111111…",
        ),
        (
            package(5, others=["vllm/a.py"]),
            "vllm 0.28.0: 6 of 2941 files changed, 5 of them compiled: _C0.abi3.so "
            "000000000000…, _C1.abi3.so 111111111111…, _C2.abi3.so 222222222222… and 2 more",
        ),
        (
            package(0, others=["vllm/a.py", "vllm/b.py"], missing=1),
            "vllm 0.28.0: 1 of 2941 files changed, 1 missing",
        ),
        (
            package(0, built_from="file:///src, editable"),
            "vllm 0.28.0: 0 of 2941 files changed, built from file:///src, editable",
        ),
    ],
)
def test_a_deviation_is_a_sentence(deviation, line):
    assert contract_lines(report(deviation))[1] == f"deviation from it, accepted: {line}"


def test_what_was_not_accepted_is_said_so_and_other_notes_follow():
    lines = contract_lines(report(TORCH, accepted=(), notes=["v3 is no workaround"]))
    assert lines[1:] == [
        "deviation from it, not accepted: torch 2.11.0 where 2.13.0 is pinned",
        "v3 is no workaround",
    ]


def test_an_unknown_deviation_is_shown_as_recorded():
    lines = contract_lines(report({"what": "moon", "expected": 1, "found": {"a": None}}))
    assert lines[1] == 'deviation from it, not accepted: moon is {"a": null}, expected 1'


def test_all_changed_files_stand_in_the_table_with_whole_digests():
    rows = changed_file_rows(report(TORCH, package(5, others=["vllm/a.py"])))
    assert rows[0] == ("vllm 0.28.0", "vllm/n/_C0.abi3.so", "0" * 64)
    assert rows[4:] == [
        ("vllm 0.28.0", "vllm/n/_C4.abi3.so", "4" * 64),
        ("vllm 0.28.0", "vllm/a.py", "not compiled, or missing"),
        ("vllm 0.28.0", "all that changed", "f" * 64),
    ]
    assert changed_file_rows(report(TORCH)) == []
    assert changed_file_rows(build.report([])) == []


@pytest.mark.parametrize("form", [console, markdown, html])
def test_no_form_shows_a_package_as_json_before_the_targets(form):
    text = form(report(package(7), TORCH), "r").replace("\\", "")
    top = text[: text.index("240–512")]
    assert "torch 2.11.0 where 2.13.0 is pinned" in top
    assert "7 of 2941 files changed" in top
    assert "changed_compiled" not in top
    assert max(map(len, console(report(package(7)), "r").splitlines())) <= 300
