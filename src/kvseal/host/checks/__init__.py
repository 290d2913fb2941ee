# SPDX-License-Identifier: Apache-2.0
"""Every prerequisite of a run as a small function of facts and run spec.

A check gets `HostFacts` and `CommonSpec` and returns one `Outcome` or several; it
never looks at the machine itself. To add one, write the function and name it
in `CHECKS`. All of them run, whatever fails before.
"""

from __future__ import annotations

from collections.abc import Callable

from kvseal.errors import OptionError
from kvseal.host.checks import gpu, machine, software, storage
from kvseal.host.checks.outcome import Outcome, Status
from kvseal.host.facts import HostFacts
from kvseal.spec.runspec import CommonSpec

Check = Callable[[HostFacts, CommonSpec], "Outcome | list[Outcome]"]

CHECKS: tuple[tuple[Check, tuple[str, ...]], ...] = (
    (machine.system, ("cpu", "cuda")),
    (machine.cpu_isa, ("cpu", "cuda")),
    (gpu.driver, ("cuda",)),
    (gpu.cuda_runtime, ("cuda",)),
    (gpu.visible_devices, ("cuda",)),
    (gpu.compute_capability, ("cuda",)),
    (gpu.gpu_memory, ("cuda",)),
    (machine.host_memory, ("cpu", "cuda")),
    (machine.shared_memory, ("cpu", "cuda")),
    (storage.roots, ("cpu", "cuda")),
    (storage.disk, ("cpu", "cuda")),
    (machine.ports, ("cpu", "cuda")),
    (software.running_python, ("cpu", "cuda")),
    (software.engine_python, ("cpu", "cuda")),
    (software.glibc, ("cpu", "cuda")),
    (software.c_compiler, ("cuda",)),
    (software.cxx_compiler, ("cpu", "cuda")),
    (gpu.nvcc, ("cuda",)),
    (software.git, ("cpu", "cuda")),
)
"""Each check with the devices it is for, in the order of the report."""


def run_checks(facts: HostFacts, spec: CommonSpec) -> list[Outcome]:
    """Run every check that concerns the spec's device.

    Raises:
        OptionError: no check is for that device, so nothing would be shown.
    """
    if not any(spec.device in devices for _, devices in CHECKS):
        raise OptionError(
            "run spec for an unknown device",
            option="device",
            value=spec.device,
            expected="cpu or cuda",
        )
    outcomes: list[Outcome] = []
    for check, devices in CHECKS:
        if spec.device in devices:
            result = check(facts, spec)
            outcomes += result if isinstance(result, list) else [result]
    return outcomes


__all__ = ["CHECKS", "Check", "Outcome", "Status", "run_checks"]
