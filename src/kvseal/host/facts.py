# SPDX-License-Identifier: Apache-2.0
"""Everything the checks and environment.json need to know of this machine, in one record.

`gather` looks once; `HostFacts` is then plain data that can be invented in a
test, written as JSON and judged anywhere.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kvseal.host import machine, model_size, nvidia, roots, software
from kvseal.host.fact import Fact
from kvseal.process.ports import port_holder
from kvseal.spec.runspec import CommonSpec

FACTS_SCHEMA = "kvseal.host-facts.v1"


@dataclasses.dataclass(frozen=True)
class HostFacts:
    """Facts of one machine at one moment.

    `roots` holds `work`, `results` and `cache`; `ports` each fixed port of the
    spec, with the holder's text, empty where it is free. `cuda_version` is the
    newest that the driver supports.
    """

    system: Fact[str]
    kernel: Fact[str]
    architecture: Fact[str]
    cpu_model: Fact[str]
    cpu_flags: Fact[tuple[str, ...]]
    cpu_count: Fact[int]
    memory: Fact[machine.Space]
    shared_memory: Fact[machine.Space]
    roots: dict[str, Fact[roots.Root]]
    environment_ready: Fact[bool]
    glibc: Fact[str]
    running_python: Fact[str]
    engine_python: Fact[str]
    uv: Fact[str]
    git: Fact[str]
    c_compiler: Fact[str]
    cxx_compiler: Fact[str]
    gpus: Fact[tuple[nvidia.Gpu, ...]]
    driver: Fact[str]
    cuda_version: Fact[tuple[int, int]]
    nvcc: Fact[str]
    ports: dict[int, Fact[str]]
    model_parameters: Fact[int]

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain JSON values, each with its source."""
        plain: dict[str, Any] = {"schema": FACTS_SCHEMA}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                plain[field.name] = {str(key): item.to_json() for key, item in value.items()}
            else:
                plain[field.name] = value.to_json()
        return plain


def gather(spec: CommonSpec) -> HostFacts:
    """Look at this machine for what `spec` needs. Takes seconds, changes nothing."""
    gpus = nvidia.gpus()
    driver = nvidia.driver_version(gpus)
    return HostFacts(
        system=machine.system(),
        kernel=machine.kernel(),
        architecture=machine.architecture(),
        cpu_model=machine.cpu_model(),
        cpu_flags=machine.cpu_flags(),
        cpu_count=machine.cpu_count(),
        memory=machine.memory(),
        shared_memory=machine.shared_memory(),
        roots={
            name: roots.root(getattr(spec.roots, name)) for name in ("work", "results", "cache")
        },
        environment_ready=_environment(spec.environment.path),
        glibc=software.glibc(),
        running_python=software.running_python(),
        engine_python=software.python_for(spec.python.version),
        uv=software.program("uv"),
        git=software.program("git"),
        c_compiler=software.c_compiler(),
        cxx_compiler=software.cxx_compiler(),
        gpus=gpus,
        driver=driver,
        cuda_version=nvidia.cuda_version(driver),
        nvcc=nvidia.nvcc(),
        ports={port: _port(port) for port in fixed_ports(spec).values()},
        model_parameters=model_size.parameters(spec.model),
    )


def fixed_ports(spec: CommonSpec) -> dict[str, int]:
    """Return the ports a spec names, by field; 0 means that a free one is picked."""
    named = {
        "vllm.port": spec.vllm.port,
        "lmcache.port": spec.lmcache.port,
        "lmcache.http_port": spec.lmcache.http_port,
    }
    return {name: port for name, port in named.items() if port}


def _environment(path: str) -> Fact[bool]:
    return Fact((Path(path) / "bin" / "python").exists(), f"{path}/bin/python")


def _port(port: int) -> Fact[str]:
    holder = port_holder(port)
    return Fact("" if holder is None else str(holder), "/proc/net/tcp, /proc/net/tcp6")
