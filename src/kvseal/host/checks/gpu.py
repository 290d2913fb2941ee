# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs against what vLLM's wheel needs. Asked for the device `cuda` alone."""

from __future__ import annotations

from kvseal.host.checks import needs
from kvseal.host.checks.outcome import Outcome, gib, judged, undecided
from kvseal.host.facts import HostFacts
from kvseal.host.nvidia import DRIVER_BY_CUDA_MAJOR, Gpu
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


def driver(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The driver answers, and is of a branch that runs the wheel's CUDA major version."""
    runtime = needs.cuda_runtime(spec) or (13, 0)
    lowest = dict(DRIVER_BY_CUDA_MAJOR)[runtime[0]]
    needed = f"NVIDIA driver {lowest} or newer"
    remedies = [
        f"install NVIDIA driver {lowest} or newer and check with `nvidia-smi`",
        "in a container, start it with the NVIDIA container runtime (`--gpus`)",
    ]
    if facts.driver.value is None:
        return judged("NVIDIA driver", False, facts.driver.reason, needed, remedies)
    head = facts.driver.value.partition(".")[0]
    if not head.isdigit():
        return undecided("NVIDIA driver", f"version {facts.driver.value}", needed)
    # A data-centre GPU may run newer CUDA on an older driver, with NVIDIA's
    # forward compatibility package; what the driver then reports is newer too.
    supported = facts.cuda_version.value is not None and facts.cuda_version.value >= runtime
    good = int(head) >= lowest or supported
    return judged("NVIDIA driver", good, facts.driver.value, needed, remedies[:1])


def cuda_runtime(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The driver supports the CUDA runtime inside vLLM's wheel."""
    runtime = needs.cuda_runtime(spec)
    if runtime is None:
        return undecided(
            "CUDA runtime",
            f"the runtime of vLLM {spec.vllm.version} is not listed",
            "a vLLM version that kvseal knows",
        )
    needed = f"CUDA {needs.dotted(runtime)}, which vLLM {spec.vllm.version}'s wheel brings"
    if facts.cuda_version.value is None:
        return undecided("CUDA runtime", facts.cuda_version.reason, needed)
    found = f"driver supports CUDA {needs.dotted(facts.cuda_version.value)}"
    # Within one major version a newer runtime runs on an older driver.
    good = facts.cuda_version.value[0] >= runtime[0]
    return judged(
        "CUDA runtime",
        good,
        found,
        needed,
        [f"install a driver that supports CUDA {needs.dotted(runtime)}"],
    )


def visible_devices(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """Every GPU that the spec names is there."""
    needed = f"GPU {spec.vllm.visible_devices}"
    if facts.gpus.value is None:
        return judged(
            "visible GPUs",
            False,
            facts.gpus.reason,
            needed,
            ["a working driver and a GPU, or the CPU profile"],
        )
    there = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in facts.gpus.value)
    chosen, odd = _chosen(facts.gpus.value, spec.vllm.visible_devices)
    if odd and all(name.startswith("MIG-") for name in odd):
        return undecided(
            "visible GPUs", f"{', '.join(odd)} is a MIG slice; there are {there}", needed
        )
    return judged(
        "visible GPUs",
        bool(chosen) and not odd,
        there,
        needed,
        [
            f"set {symbols_of('vllm.visible_devices', spec.workflow)} to indices or UUIDs that "
            "are there"
        ],
    )


def compute_capability(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The GPUs are of a generation that vLLM's kernels, and the dtype, run on."""
    half = spec.vllm.dtype == "bfloat16"
    lowest = needs.BFLOAT16_COMPUTE_CAPABILITY if half else needs.LOWEST_COMPUTE_CAPABILITY
    needed = f"{needs.dotted(lowest)} or higher for {spec.vllm.dtype}"
    name = "compute capability"
    if facts.gpus.value is None:
        return undecided(name, facts.gpus.reason, needed)
    chosen, _ = _chosen(facts.gpus.value, spec.vllm.visible_devices)
    known = [gpu for gpu in chosen if gpu.compute_capability is not None]
    if not known or len(known) < len(chosen):
        return undecided(name, "nvidia-smi does not tell it", needed)
    found = ", ".join(
        f"{gpu.name}: {needs.dotted(gpu.compute_capability or (0, 0))}" for gpu in known
    )
    good = all((gpu.compute_capability or (0, 0)) >= lowest for gpu in known)
    remedies = [f"choose another GPU with {symbols_of('vllm.visible_devices', spec.workflow)}"]
    if half:
        remedies.append(f"or set {symbols_of('vllm.dtype', spec.workflow)} to float16")
    return judged(name, good, found, needed, remedies)


def gpu_memory(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The share that vLLM may take is free, for each vLLM at once, and holds the weights.

    vLLM refuses to start when less than its share is free: vLLM 0.28.0,
    v1/worker/utils.py, request_memory.
    """
    percent = spec.vllm.gpu_memory_percent
    weights = needs.weight_bytes(facts, spec)
    least = needs.GPU_WORKING_BYTES + (weights or 0)
    engines = needs.engines_at_once(spec)
    times = f"{engines} times " if engines > 1 else ""
    needed = (
        f"{times}{percent} % of each GPU free, at least {gib(least)} for weights and working memory"
    )
    name = "GPU memory"
    if facts.gpus.value is None:
        return undecided(name, facts.gpus.reason, needed)
    chosen, _ = _chosen(facts.gpus.value, spec.vllm.visible_devices)
    if not chosen:
        return undecided(name, "none of the chosen GPUs is there", needed)
    option = symbols_of("vllm.gpu_memory_percent", spec.workflow)
    found, remedies = [], []
    for gpu in chosen:
        share = gpu.memory_total_bytes * percent // 100
        found.append(
            f"GPU {gpu.index}: {gib(gpu.memory_free_bytes)} free of "
            f"{gib(gpu.memory_total_bytes)}, share {gib(share)}"
        )
        if engines * share > gpu.memory_free_bytes:
            remedies.append(f"end what else uses GPU {gpu.index} (`nvidia-smi`) or lower {option}")
        if share < least:
            model = symbols_of("model.name", spec.workflow)
            remedies.append(f"raise {option} or choose a smaller {model}")
    if not remedies and weights is None:
        return undecided(name, f"{'; '.join(found)}; {facts.model_parameters.reason}", needed)
    return judged(name, not remedies, "; ".join(found), needed, list(dict.fromkeys(remedies)))


def nvcc(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The CUDA compiler, which only an LMCache built from a checkout wants."""
    if spec.lmcache.source != "git":
        found = facts.nvcc.value or "none"
        return judged("CUDA compiler", True, found, "none: LMCache comes as a wheel", [])
    runtime = needs.cuda_runtime(spec) or (13, 0)
    needed = f"nvcc {runtime[0]}.x, to build LMCache from {spec.lmcache.ref or 'a checkout'}"
    if facts.nvcc.value is None:
        return undecided(
            "CUDA compiler",
            facts.nvcc.reason,
            needed,
            [
                "the build uses the one in vLLM's requirements if it has one; else install CUDA "
                f"{runtime[0]}'s, or take LMCache from the package index"
            ],
        )
    pair = needs.version_pair(facts.nvcc.value)
    return judged(
        "CUDA compiler",
        pair is not None and pair[0] == runtime[0],
        facts.nvcc.value,
        needed,
        [f"put the nvcc of CUDA {runtime[0]} first on PATH"],
    )


def _chosen(gpus: tuple[Gpu, ...], devices: str) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES text names, and the names that fit none."""
    chosen, odd = [], []
    for name in (part.strip() for part in devices.split(",") if part.strip()):
        fits = [gpu for gpu in gpus if name in (str(gpu.index), gpu.uuid)]
        # CUDA accepts the beginning of a UUID if only one GPU has it.
        if not fits and name.startswith("GPU-"):
            fits = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
        if len(fits) == 1:
            chosen += fits
        else:
            odd.append(name)
    return chosen, odd
