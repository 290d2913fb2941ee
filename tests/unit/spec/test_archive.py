# SPDX-License-Identifier: Apache-2.0
"""The archive is the same for the same source, runs, and changes with any file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvseal.errors import OptionError
from kvseal.spec import archive

PACKAGE = Path(__file__).resolve().parents[3] / "src" / "kvseal"


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "kvseal"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "data" / "a.json").write_text("{}")
    return folder


def test_times_and_caches_do_not_matter(package):
    first = archive.archive_bytes(package)
    os.utime(package / "__init__.py", (0, 0))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert archive.archive_bytes(package) == first


def test_any_file_matters(package):
    seen = {archive.archive_bytes(package)}
    (package / "data" / "a.json").write_text("[]")
    seen.add(archive.archive_bytes(package))
    (package / "data" / "b.json").write_text("{}")
    seen.add(archive.archive_bytes(package))
    assert len(seen) == 3


def test_name_is_the_digest_and_a_damaged_file_is_replaced(package, tmp_path):
    path, sha256 = archive.write_archive(package, tmp_path / "build")
    assert path.name == f"kvseal-{sha256[:12]}.pyz"
    good = path.read_bytes()
    path.write_bytes(b"half")
    assert archive.write_archive(package, tmp_path / "build") == (path, sha256)
    assert path.read_bytes() == good
    assert list(path.parent.iterdir()) == [path]


def test_the_real_one_runs_without_the_checkout(tmp_path):
    path, _ = archive.write_archive(PACKAGE, tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", str(path), "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.defpath},
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "kvseal"), done.stderr


def test_no_package_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no Python package"):
        archive.archive_bytes(tmp_path)
