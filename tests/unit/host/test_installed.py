# SPDX-License-Identifier: Apache-2.0
"""Stock or not: small distributions on disk, and real ones as an installer left them."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import pytest

from kvseal.canonical import digest
from kvseal.host import installed

NAME = "kvseal-sample"
INFO = "kvseal_sample-1.2.dist-info"
FILES = {
    "sample/__init__.py": b"first = 1\n",
    "sample/core.py": b"second = 2\n",
    "sample/ops.abi3.so": b"\x7fELF",
    "sample/data/table.json": b"{}\n",
}


def recorded(name: str, data: bytes, algorithm: str = "sha256") -> str:
    value = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode().rstrip("=")
    return f"{name},{algorithm}={value},{len(data)}\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Site:
    """A folder of packages that comes first on sys.path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = ""

    def write(self, name: str, data: bytes, entry: str | None = None) -> None:
        """Put a file there; `entry` is its line of RECORD, made from it when None."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.record += recorded(name, data) if entry is None else entry

    def install(self, *requires: str, record: bool = True) -> None:
        lines = ["Metadata-Version: 2.4", f"Name: {NAME}", "Version: 1.2"]
        metadata = "\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires), "", ""])
        self.write(f"{INFO}/METADATA", metadata.encode())
        self.write(f"{INFO}/RECORD", b"", f"{INFO}/RECORD,,\n")
        if record:
            (self.path / INFO / "RECORD").write_text(self.record, encoding="utf-8")
        else:
            (self.path / INFO / "RECORD").unlink()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder)


@pytest.fixture
def sample(site: Site) -> Site:
    for name, data in FILES.items():
        site.write(name, data)
    site.install()
    return site


def test_stock(sample: Site) -> None:
    found = installed.inspect(NAME)
    assert found.stock
    assert found == installed.Installation(NAME, "1.2", 4, {})
    assert found.to_json() == {
        "name": NAME, "version": "1.2", "recorded_files": 4, "changed_files": 0,
        "missing_files": 0, "changed_sha256": None, "changed_compiled": {}, "changed_some": [],
        "built_from": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file(sample: Site, name: str) -> None:
    data = FILES[name] + b"\n"
    (sample.path / name).write_bytes(data)
    found = installed.inspect(NAME)
    assert not found.stock
    assert found.changed == {name: sha256(data)}
    assert found.recorded == 4


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(sample: Site, name: str) -> None:
    (sample.path / name).unlink()
    found = installed.inspect(NAME)
    assert not found.stock
    assert found.changed == {name: None}


def test_a_folder_in_a_file_s_place_is_no_file(sample: Site) -> None:
    (sample.path / "sample/core.py").unlink()
    (sample.path / "sample/core.py").mkdir()
    assert installed.inspect(NAME).changed == {"sample/core.py": None}


def test_what_is_changed_and_missing_in_a_report(sample: Site) -> None:
    (sample.path / "sample/ops.abi3.so").write_bytes(b"rebuilt")
    (sample.path / "sample/core.py").unlink()
    document = installed.inspect(NAME).to_json()
    changed = {"sample/ops.abi3.so": sha256(b"rebuilt"), "sample/core.py": None}
    assert document["changed_files"] == 1
    assert document["missing_files"] == 1
    assert document["changed_compiled"] == {"sample/ops.abi3.so": sha256(b"rebuilt")}
    assert document["changed_some"] == ["sample/core.py"]
    assert document["changed_sha256"] == digest(changed)


def test_a_missing_compiled_file_is_named_without_a_digest(sample: Site) -> None:
    (sample.path / "sample/ops.abi3.so").unlink()
    document = installed.inspect(NAME).to_json()
    assert document["changed_compiled"] == {}
    assert document["changed_some"] == ["sample/ops.abi3.so"]


def test_so_many_are_named_and_all_are_digested(site: Site) -> None:
    names = [f"sample/part{number:02}.py" for number in range(25)]
    for name in names:
        site.write(name, b"as published")
    site.install()
    for name in reversed(names):
        (site.path / name).write_bytes(b"changed")
    document = installed.inspect(NAME).to_json()
    assert document["changed_files"] == 25
    assert document["changed_some"] == names[:20]
    assert document["changed_sha256"] == digest({name: sha256(b"changed") for name in names})


@pytest.mark.parametrize(
    "name", ["sample/core/__init__.py", "sample/ops.cpython-311-x86_64-linux-gnu.so", "sample/a.py"]
)
def test_an_added_module_is_not_as_published(sample: Site, name: str) -> None:
    """The first two would be imported in place of what was published under that name."""
    (sample.path / name).parent.mkdir(exist_ok=True)
    (sample.path / name).write_bytes(b"added")
    found = installed.inspect(NAME)
    assert not found.stock
    assert found.changed == {name: sha256(b"added")}
    assert found.recorded == 4


@pytest.mark.parametrize(
    "name", ["sample/__pycache__/core.cpython-311.pyc", "sample/cache.json", "other/a.py", "a.py"]
)
def test_an_added_file_that_no_import_of_it_takes(sample: Site, name: str) -> None:
    (sample.path / name).parent.mkdir(exist_ok=True)
    (sample.path / name).write_bytes(b"added")
    assert installed.inspect(NAME).stock


def test_a_folder_called_like_a_module_is_none(sample: Site) -> None:
    (sample.path / "sample/odd.py").mkdir()
    assert installed.inspect(NAME).stock


def test_a_module_without_a_digest_is_vouched_for_by_nobody(site: Site) -> None:
    site.write("sample/__init__.py", b"")
    site.write("sample/core.py", b"1", "sample/core.py,,\n")
    site.install()
    assert installed.inspect(NAME).changed == {"sample/core.py": sha256(b"1")}


def test_a_digest_of_another_kind_is_none(site: Site) -> None:
    site.write("sample/__init__.py", b"")
    site.write("sample/core.py", b"1", recorded("sample/core.py", b"1", "md5"))
    site.write("sample/table.json", b"2", recorded("sample/table.json", b"2", "sha512"))
    site.install()
    found = installed.inspect(NAME)
    assert found.recorded == 1
    assert found.changed == {"sample/core.py": sha256(b"1")}


def test_bytecode_scripts_and_the_installer_s_notes_are_not_looked_at(site: Site) -> None:
    site.write("sample/__init__.py", b"")
    site.write("sample/__pycache__/a.pyc", b"1", "sample/__pycache__/a.pyc,,\n")
    site.write("../bin/sample", b"#!/new/python", recorded("../bin/sample", b"#!python"))
    site.write(f"{INFO}/INSTALLER", b"uv", recorded(f"{INFO}/INSTALLER", b"pip"))
    site.install()
    found = installed.inspect(NAME)
    assert found.stock
    assert found.recorded == 1


def test_a_linked_file_counts_by_its_bytes(sample: Site, tmp_path: Path) -> None:
    for number, data in enumerate((FILES["sample/core.py"], b"other")):
        cached = tmp_path / f"cached{number}"
        cached.write_bytes(data)
        link = sample.path / "sample/core.py"
        link.unlink()
        link.symlink_to(cached)
        assert installed.inspect(NAME).stock == (number == 0)


def test_a_single_module_has_no_folder(site: Site) -> None:
    site.write("alone.py", b"1")
    site.install()
    (site.path / "another.py").write_bytes(b"2")
    assert installed.inspect(NAME).stock


@pytest.mark.parametrize("record", [True, False], ids=["empty RECORD", "no RECORD"])
def test_nothing_recorded_is_not_stock(site: Site, record: bool) -> None:
    (site.path / "sample").mkdir()
    (site.path / "sample/__init__.py").touch()
    site.install(record=record)
    found = installed.inspect(NAME)
    assert not found.stock
    assert found.recorded == 0


@pytest.mark.parametrize(
    ("origin", "built_from"),
    [
        ({"dir_info": {"editable": True}}, "file:///src, editable"),
        ({"dir_info": {"editable": False}}, "file:///src"),
        ({"dir_info": {}}, "file:///src"),
        ({"vcs_info": {"vcs": "git", "commit_id": "0" * 40}}, "file:///src"),
        ({"archive_info": {"hash": "sha256=0"}}, None),
        ({"archive_info": {}}, None),
    ],
)
def test_what_was_built_from_sources_is_not_as_published(
    sample: Site, origin: dict[str, object], built_from: str | None
) -> None:
    """An editable install's RECORD names one file, which is as recorded."""
    (sample.path / INFO / "direct_url.json").write_text(
        json.dumps({"url": "file:///src", **origin}), encoding="utf-8"
    )
    found = installed.inspect(NAME)
    assert found.changed == {}
    assert found.stock == (built_from is None)
    assert found.to_json()["built_from"] == built_from


def test_what_is_not_installed() -> None:
    assert installed.version("kvseal-no-such-package") is None
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        installed.inspect("kvseal-no-such-package")


def test_a_version(sample: Site) -> None:
    assert installed.version(NAME) == "1.2"


@pytest.mark.parametrize(
    ("requires", "wanted"),
    [
        (["torch==2.13.0"], "2.13.0"),
        (['torch==2.13.0+cpu; platform_machine == "x86_64"'], "2.13.0+cpu"),
        (['torch==2.13.0+cpu;platform_machine=="x86_64"'], "2.13.0+cpu"),
        (["Torch==1"], "1"),
        (["numpy==2", "torchaudio==3", "torch==4"], "4"),
        (['torch==1; extra == "old"', "torch==2"], "2"),
        (['torch==1; platform_system == "Darwin" or platform_machine == "riscv64"'], None),
        (['torch==1; extra == "gpu"'], None),
        (["torch"], None),
        (["torch>=2"], None),
        (["torchvision==3", "torch-xla==4"], None),
        ([], None),
    ],
)
def test_a_required_version(site: Site, requires: list[str], wanted: str | None) -> None:
    site.install(*requires)
    assert installed.required_version(NAME, "torch") == wanted


@pytest.mark.parametrize("name", ["pytest", "jsonschema", "hypothesis"])
def test_a_real_package_is_stock_until_it_is_touched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = installed.inspect(name)
    assert original.stock, original.to_json()
    assert original.recorded > 20
    distribution = importlib.metadata.distribution(name)
    files = distribution.files or []
    for item in files:
        if item.parts[0] != ".." and Path(str(item.locate())).is_file():
            target = tmp_path / item
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(item.locate(), target)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert str(importlib.metadata.distribution(name).locate_file("")) == str(tmp_path)
    assert installed.inspect(name) == original
    changed = next(item for item in files if item.name == "__init__.py" and item.hash)
    with (tmp_path / changed).open("ab") as file:
        file.write(b"\n")
    found = installed.inspect(name)
    assert not found.stock
    assert list(found.changed) == [changed.as_posix()]
