# SPDX-License-Identifier: Apache-2.0
"""What a run stands on: versions, revisions, model files, patches, machine.

Read from the installed packages themselves, not from what was asked for.
Writes environment.json, patches.json and patches.diff into a run folder.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import kvseal
from kvseal import store
from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.errors import PrerequisiteError
from kvseal.host.facts import HostFacts
from kvseal.host.installed import versions
from kvseal.models.directory import ModelDirectory
from kvseal.records import builders
from kvseal.spec.runspec import CommonSpec

ENVIRONMENT_SCHEMA = "kvseal.environment.v1"
LMCACHE_SOURCE = "lmcache-source.json"
"""Written into the work root where LMCache was built from a git checkout."""


def record_environment(
    spec: CommonSpec, folder: Path, host: HostFacts, model: ModelDirectory
) -> dict[str, Any]:
    """Write the three files and return the history's `environment` event.

    Raises:
        PrerequisiteError: an installed version is not the spec's.
        PatchError: the installed files are not what the patch record says.
    """
    installed = versions()
    for name, wanted in (
        (spec.vllm.distribution, spec.vllm.version),
        ("lmcache", spec.lmcache.version if spec.lmcache.source == "index" else None),
    ):
        _expect(name, installed.get(name), wanted, spec.workflow)
    lmcache = _lmcache_source(spec)
    details = {
        "schema": ENVIRONMENT_SCHEMA,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "distributions": installed,
        "lmcache": lmcache,
        "model": {
            "name": model.name,
            "path": str(model.path),
            "revision": model.revision,
            "files": model.files,
            "files_sha256": model.files_sha256,
        },
        "host": host.to_json(),
    }
    store.write_json(folder / "environment.json", details)
    patchset.export_record(Environment.find(Path(spec.environment.path)), folder)
    return builders.environment(
        kvseal_version=kvseal.__version__,
        vllm_version=installed.get(spec.vllm.distribution),
        lmcache_version=installed.get("lmcache"),
        torch_version=installed.get("torch"),
        lmcache_revision=lmcache["revision"],
        model_revision=model.revision,
        details=details,
    )


def _expect(name: str, found: str | None, wanted: str | None, workflow: str) -> None:
    if wanted is not None and found != wanted:
        raise PrerequisiteError(
            f"{name} in the engine environment is not the one of the run spec",
            option=name,
            value=found or "not installed",
            expected=wanted,
            remedy=f"make {workflow}-build",
        )


def _lmcache_source(spec: CommonSpec) -> dict[str, Any]:
    """Where LMCache came from; `revision` is its commit as far as it is known."""
    if spec.lmcache.source == "git":
        source: dict[str, Any] = json.loads(
            (Path(spec.roots.work) / LMCACHE_SOURCE).read_text(encoding="utf-8")
        )
        return {"source": "git", **source, "revision": source.get("commit")}
    try:
        # The wheel's own note of the commit it was built from.
        from lmcache._version import __commit_id__ as commit
    except ImportError:
        commit = None
    return {"source": "index", "version": spec.lmcache.version, "revision": commit}
