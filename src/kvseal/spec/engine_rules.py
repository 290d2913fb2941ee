# SPDX-License-Identifier: Apache-2.0
"""What the engines' settings demand of each other: versions, data types, blocks, ports.

Each rule yields every problem it finds. Called by kvseal.spec.rules alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec import pins
from kvseal.spec.options import WORKFLOWS, Workflow
from kvseal.spec.runspec import CommonSpec

CPU_BLOCK_TOKENS = 32
"""vLLM's CPU attention packs blocks of this size. Source: its `_get_attn_isa` kernels."""
GPU_BLOCK_TOKENS = 16
DTYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float16", "bfloat16", "float32")}
"""Data types whose KV layout is known on each device."""

_Problems = Iterator[OptionError]


def problems(spec: CommonSpec) -> _Problems:
    """Yield what is wrong with the engines' settings."""
    for rule in (_versions, _device, _lmcache, _ports):
        yield from rule(spec, WORKFLOWS[spec.workflow])


def _versions(spec: CommonSpec, of: Workflow) -> _Problems:
    pin = pins.find(spec.device, spec.vllm.version)
    if pin is None:
        known = [row.version for row in pins.PINS if row.device == spec.device]
        yield of.wrong(
            "VLLM_VERSION",
            f"this vLLM has not been read and tried on {spec.device}",
            spec.vllm.version,
            " or ".join(known),
            f"set {of.symbol('VLLM_VERSION')} to one of these",
        )
        return
    if spec.python.version not in pin.pythons:
        yield of.wrong(
            "PYTHON",
            f"no engine environment for this Python with {pin.distribution} {pin.version}",
            spec.python.version,
            " or ".join(pin.pythons),
            "install one of these Pythons and name it here (empty means: the Python that "
            "runs `make`; KVSEAL_PYTHON chooses that one)",
        )
    version = spec.lmcache.version
    if spec.lmcache.source == "index" and version not in pin.lmcache:
        yield of.wrong(
            "LMCACHE_VERSION",
            f"this LMCache does not go with {pin.distribution} {pin.version}"
            + (f": {pin.note}" if pin.note else ""),
            version,
            " or ".join(pin.lmcache) or "a build from git against this vLLM's torch",
            f"choose a version from the list, or set {of.symbol('LMCACHE_FROM_GIT')}=y and a ref",
        )
    elif spec.lmcache.source == "index" and of.lmcache is not None and version not in of.lmcache:
        yield of.wrong(
            "LMCACHE_VERSION",
            f"the workflow {of.name} has not been tried with this LMCache",
            version,
            " or ".join(of.lmcache),
            "set it to that",
        )


def _device(spec: CommonSpec, of: Workflow) -> _Problems:
    dtypes = DTYPES.get(spec.device, ())
    if dtypes and spec.vllm.dtype not in dtypes:
        yield of.wrong(
            "DTYPE",
            f"KV of this type has no known layout on {spec.device}",
            spec.vllm.dtype,
            " or ".join(dtypes),
            f"change it, or {of.symbol('DEVICE_CPU')}",
        )
    block = CPU_BLOCK_TOKENS if spec.device == "cpu" else GPU_BLOCK_TOKENS
    if spec.vllm.block_size_tokens % block:
        yield of.wrong(
            "BLOCK_SIZE",
            f"vLLM's attention on {spec.device} has no such block",
            spec.vllm.block_size_tokens,
            f"a multiple of {block}",
            f"set it to {block}",
        )


def _lmcache(spec: CommonSpec, of: Workflow) -> _Problems:
    if spec.lmcache.source == "git":
        for name, value in (
            ("LMCACHE_REPO", spec.lmcache.repository),
            ("LMCACHE_REF", spec.lmcache.ref),
        ):
            if not value or value.startswith("-") or re.search(r"[\s\x00-\x1f]", value):
                yield of.wrong(
                    name,
                    "LMCache comes from git, but this does not name what to fetch",
                    value,
                    "a repository" if name == "LMCACHE_REPO" else "a commit, tag or branch",
                    f"fill it in, or set {of.symbol('LMCACHE_FROM_GIT')}=n",
                )
    chunk, block = spec.lmcache.chunk_size_tokens, spec.vllm.block_size_tokens
    if block and chunk % block:
        yield of.wrong(
            "CHUNK_SIZE",
            "LMCache's chunk must be whole vLLM blocks",
            chunk,
            f"a multiple of {of.symbol('BLOCK_SIZE')} = {block}",
            f"set it to {max(1, chunk // block) * block}",
        )


def _ports(spec: CommonSpec, of: Workflow) -> _Problems:
    ports: dict[int, str] = {}
    for name, port in (
        ("VLLM_PORT", spec.vllm.port),
        ("LMCACHE_PORT", spec.lmcache.port),
        ("LMCACHE_HTTP_PORT", spec.lmcache.http_port),
    ):
        if not port:
            continue  # a free one; and the verifier has no port of vLLM to name
        if port in ports:
            yield of.wrong(
                name,
                f"this port is taken by {ports[port]}",
                port,
                "another port, or 0 to have a free one picked",
                "set it to 0",
            )
        ports.setdefault(port, of.symbol(name))
