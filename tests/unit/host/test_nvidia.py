# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi's answers, from an H200 and from machines where it has none."""

from pathlib import Path

import pytest

from kvseal.host import nvidia
from kvseal.host.command import Answer
from kvseal.host.fact import Fact, unknown

H200 = "0, GPU-6b1d, NVIDIA H200, 143771, 143150, 580.159.04, 9.0\n"


def test_an_h200_is_read() -> None:
    found = nvidia.parse_gpus(Answer(H200), "s").value
    assert found is not None
    assert found[0].name == "NVIDIA H200"
    assert found[0].memory_total_bytes == 143771 << 20
    assert found[0].compute_capability == (9, 0)
    assert nvidia.driver_version(Fact(found, "s")).value == "580.159.04"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("", "nvidia-smi is not installed"), "not installed"),
        (Answer("No devices were found\n"), "lists no GPU"),
        (Answer(""), "lists no GPU"),
        (Answer(H200.replace("143771", "[N/A]")), "something else"),
    ],
)
def test_no_answer_is_unknown_with_a_reason(answer: Answer, reason: str) -> None:
    fact = nvidia.parse_gpus(answer, "s")
    assert fact.value is None
    assert reason in fact.reason
    assert nvidia.driver_version(fact).reason == fact.reason


def test_a_capability_that_is_not_told_is_none() -> None:
    found = nvidia.parse_gpus(Answer(H200.replace("9.0", "[N/A]")), "s").value
    assert found is not None
    assert found[0].compute_capability is None


def fake_smi(folder: Path, text: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("| Driver Version: 580.159.04     CUDA Version: 13.0     |", (13, 0)),
        ("| CUDA UMD Version: 13.1 |", (13, 1)),
        ("nothing of it", (12, 0)),
    ],
)
def test_cuda_version_from_the_heading_else_by_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, expected: tuple[int, int]
) -> None:
    fake_smi(tmp_path, heading)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nvidia.cuda_version(Fact("575.51.03", "s")).value == expected


def test_cuda_version_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.cuda_version(unknown("s", "no driver")).reason == "no driver"
    assert "older" in nvidia.cuda_version(Fact("390.1", "s")).reason


def test_the_real_machine_answers_or_says_why() -> None:
    fact = nvidia.gpus()
    assert (fact.value is None) == bool(fact.reason)
