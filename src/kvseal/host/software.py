# SPDX-License-Identifier: Apache-2.0
"""Python, C library and programs of this machine that a run or its build needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys

from kvseal.host.command import ask
from kvseal.host.fact import Fact, unknown

C_COMPILERS = ("gcc", "clang")
"""Source: triton/runtime/build.py, _find_compiler: $CC, else these."""

CXX_COMPILERS = ("g++", "clang++", "c++")


def glibc() -> Fact[str]:
    """Return the version of the GNU C library this Python runs on; unknown on another."""
    source = "confstr(CS_GNU_LIBC_VERSION)"
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        text = ""
    name, _, version = text.partition(" ")
    if name != "glibc" or not version:
        return unknown(source, "the C library is not glibc")
    return Fact(version, source)


def running_python() -> Fact[str]:
    """Return the version of the Python that runs this."""
    return Fact(platform.python_version(), sys.executable or "sys.version")


def python_for(version: str) -> Fact[str]:
    """Return the path of a Python `version` (major.minor) that is installed here."""
    source = f"PATH, `uv python find {version}`"
    if version == ".".join(str(part) for part in sys.version_info[:2]):
        return Fact(sys.executable, "the Python that runs this")
    answer = ask(["uv", "python", "find", "--no-project", "--offline", version])
    if answer.text.strip():
        return Fact(answer.text.strip(), source)
    path = shutil.which(f"python{version}")
    # A shim of a version manager exists for versions that are not installed.
    if path and ask([path, "-c", "print('runs')"]).text.strip() == "runs":
        return Fact(path, source)
    return unknown(source, "none is installed")


def program(*names: str) -> Fact[str]:
    """Return the path of the first of `names` that is on PATH."""
    for name in names:
        path = shutil.which(name)
        if path:
            return Fact(path, "PATH")
    return unknown("PATH", f"no {' or '.join(names)} is installed")


def c_compiler() -> Fact[str]:
    """Return the path of a C compiler: $CC if set, else the usual names."""
    wanted = os.environ.get("CC")
    return program(wanted) if wanted else program(*C_COMPILERS)


def cxx_compiler() -> Fact[str]:
    """Return the path of a C++ compiler: $CXX if set, else the usual names."""
    wanted = os.environ.get("CXX")
    return program(wanted) if wanted else program(*CXX_COMPILERS)
