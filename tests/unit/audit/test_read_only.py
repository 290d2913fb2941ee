# SPDX-License-Identifier: Apache-2.0
"""An audit of folders changes nothing: Python's own audit events show every call that could.

The interpreter reports each open, and each call that makes, changes or removes a
name, before it happens. One that is not a pure read ends the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvseal

SOURCE = Path(kvseal.__file__).parents[1]
WATCHED = """
import os, sys
folders = tuple(sys.argv[1].split(os.pathsep))
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
seen = []
def watch(event, args):
    paths = [os.fsdecode(a) for a in args if isinstance(a, (str, bytes, os.PathLike))]
    inside = any(path.startswith(folders) for path in paths)
    if event == "open":
        if inside:
            seen.append(args[0])
            if args[2] & WRITES:
                os._exit(97)
    elif inside and event not in ("os.scandir", "os.listdir"):
        os._exit(98)
sys.addaudithook(watch)
if sys.argv[2] == "write":
    open(folders[0] + "/x", "a")
if sys.argv[2] == "remove":
    os.remove(folders[0] + "/x")
from kvseal.cli import main
status = main(sys.argv[3:])
sys.stderr.write(f"opened {len(seen)}")
sys.exit(status)
"""


def run_watched(folders: list[Path], fault: str, *arguments: str) -> Any:
    watched = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-B", "-c", WATCHED, watched, fault, "audit", *arguments]
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        at = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (at.st_mtime_ns, at.st_ctime_ns, at.st_mode, at.st_size, data)
    return found


@pytest.fixture
def folders(
    tmp_path: Path, file_name: Any, publish: Any, manifest: Any, variant: str
) -> list[Path]:
    publish(manifest())
    store = tmp_path / "store"
    (store / "below").mkdir(parents=True)
    for place in range(3):
        (store / file_name("m", place)).write_bytes(b"k" * 5000)
        (store / file_name("m", place, "", variant)).write_bytes(b"k" * 5000)
    (store / "below" / "x.tmp").touch()
    (store / "##tv").touch()
    return [store, tmp_path / "index"]


@pytest.mark.parametrize("deep", [False, True])
def test_nothing_is_written(deep: bool, folders: list[Path]) -> None:
    if deep:
        pytest.importorskip("blake3", reason="blake3: engine environment")
    before = [state(folder) for folder in folders]
    options = ["--fs", str(folders[0]), "--index", str(folders[1]), *(["--payload"] * deep)]
    done = run_watched(folders, "none", *options)
    assert done.returncode == 1, done.stderr  # the forged name
    assert "forged.mark" in done.stdout
    # Of the store nothing is opened at all, unless bytes are asked for.
    assert done.stderr.endswith(f"opened {7 if deep else 1}")
    assert [state(folder) for folder in folders] == before


@pytest.mark.parametrize(("fault", "status"), [("write", 97), ("remove", 98)])
def test_the_watch_sees_what_it_must(fault: str, status: int, folders: list[Path]) -> None:
    assert run_watched(folders, fault, "--fs", str(folders[0])).returncode == status
