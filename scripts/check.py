# SPDX-License-Identifier: Apache-2.0
"""`make check`: lint, unit tests, every workflow as a user types it, tests on real engines.

Every phase runs even when one before it failed, as far as it can, and the end
says which did and how long each took. Tests on engines use the environments
that the workflows' own `make` builds, so none is installed twice.

    scripts/check [PHASE …]      all phases of `make check`, or those named; `all` are
                                 all there are
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from failed_tests import failed_tests

CHECKOUT = Path(__file__).resolve().parent.parent
WORK = CHECKOUT / "build" / "check"
SLOWEST = ("--durations=10", "--durations-min=2")
"""Phases that wait for engines say what took so long."""
PARALLEL = ("-n", "auto", "--dist", "loadfile")
"""A file of tests stays with one worker, since its fixtures are shared."""
FAULTS_ON = "not test_l2_faults or (0.5.6 and fs and not fs_native)"
"""Faults of second tiers take minutes, as they wait for answers that never come: one LMCache and
one tier here, and all of them by `pytest tests/unit/faults`."""
REPORTS = WORK / "reports"
report_numbers = itertools.count(1)


def run(*command: str, cwd: Path = CHECKOUT, env: dict[str, str] | None = None) -> bool:
    """Run one command with its output in view; True when it succeeded."""
    print("+", *command, flush=True)
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, cwd=cwd, env=environment, check=False).returncode == 0


def pytest(python: str, *arguments: str, env: dict[str, str] | None = None) -> bool:
    """Run tests, and keep their report for the end."""
    report = REPORTS / f"{next(report_numbers):02}.xml"
    return run(python, "-m", "pytest", f"--junitxml={report}", *arguments, env=env)


def lint() -> bool:
    """Style and types of the program, its roles and its scripts."""
    sources = ["src", "tests", "scripts", "playbooks", "roles"]
    return all(
        [
            run("ruff", "check", *sources),
            run("ruff", "format", "--check", *sources),
            run("mypy"),
            run("yamllint", "--strict", "playbooks", "roles"),
            run("ansible-lint", "--offline", "-q"),
        ]
    )


def unit() -> bool:
    """Unit tests that need no engine package."""
    return pytest(sys.executable, *PARALLEL, "tests/unit")


def ansible() -> bool:
    """The play over Ansible's local connection, with faults that real verbs don't make."""
    return pytest(sys.executable, *PARALLEL, "tests/ansible")


def comparison() -> bool:
    """The README's first command in a copy of this checkout, and what it left behind."""
    return first_command("comparison", "tests/e2e/test_first_command.py")


def verifier() -> bool:
    """The verifier, by `make` in a copy of its own, then its targets and ends on real engines."""
    return all(
        [
            first_command("verifier", "tests/e2e/test_verifier.py"),
            in_environment_of("verifier", "tests/verify"),
        ]
    )


def matrix() -> bool:
    """The matrix by `make` in a copy of its own, in short, on two LMCaches and on stock."""
    return all(
        [
            first_command("matrix", "tests/e2e/test_matrix.py"),
            # On an LMCache that carries all edits; `engines` runs them on one without.
            in_environment_of("matrix", "tests/unit/drivers/matrix"),
        ]
    )


def identity() -> bool:
    """Every edit on LMCache as published, in each release that it is made for, and on vLLM."""
    trees = published_lmcaches()
    if trees is None:
        return False
    return in_environment_of("verifier", *PARALLEL, "tests/unit/codemods", env=trees)


def backends() -> bool:
    """Each second tier alone, faults in it, an audit of it, and all that LMCache shows of keys."""
    python, trees, packages = python_of("matrix"), published_lmcaches(), WORK / "backends"
    lock = CHECKOUT / "requirements/backends.txt"
    if python is None or trees is None or not install(python, lock, packages):
        return False
    parts = ("contract", "surfaces", "unit/backends", "unit/audit", "unit/faults")
    return in_environment_of(
        "matrix",
        *("-k", FAULTS_ON),
        *(f"tests/{part}" for part in parts),
        env={**trees, "KVSEAL_TEST_BACKEND_PACKAGES": str(packages)},
    )


def engines() -> bool:
    """Tests inside the engine environment: tensors against other code, and running engines."""
    parts = ("compaction", "layouts", "engines", "faults", "workload", "drivers/matrix")
    folders = [*(f"tests/unit/{part}" for part in parts), "tests/engines"]
    return in_environment_of("comparison", *folders)


def tiers() -> bool:
    """The matrix on every second tier by `make`, on two LMCaches; hours, so not in `make check`."""
    return first_command("tiers", "tests/e2e/test_tiers.py")


def first_command(phase: str, tests: str) -> bool:
    """Run tests of `make` in a new copy of the checkout; the user's .config and results stay."""
    copy = WORK / phase
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
    return pytest(sys.executable, *SLOWEST, tests, env={"KVSEAL_CHECK_CHECKOUT": str(copy)})


def in_environment_of(phase: str, *arguments: str, env: dict[str, str] | None = None) -> bool:
    """Run pytest with the Python of the engine environment that `phase` made."""
    python, extra = python_of(phase), WORK / "engine-dev"
    if python is None or not install(python, CHECKOUT / "requirements/engine-dev.txt", extra):
        return False
    environment = {
        "PYTHONPATH": f"{CHECKOUT / 'src'}:{extra}",
        "KVSEAL_CHECK_SPEC": str(spec_of(phase)),
        "HF_HUB_OFFLINE": "1",
        **(env or {}),
    }
    return pytest(python, *SLOWEST, *arguments, env=environment)


@functools.cache
def published_lmcaches() -> dict[str, str] | None:
    """Install each LMCache that edits are made for, as published; None when that failed.

    Returns:
        The variable that tells tests where they are.
    """
    python = python_of("verifier")  # of stock packages
    if python is None:
        return None
    trees = []
    for lock in sorted((CHECKOUT / "requirements").glob("lmcache-*.txt")):
        trees.append(WORK / "trees" / lock.stem.removeprefix("lmcache-"))
        if not install(python, lock, trees[-1], "--no-build"):
            return None
    return {"KVSEAL_TEST_LMCACHE_TREES": os.pathsep.join(map(str, trees))}


def spec_of(phase: str) -> Path:
    """Return where the run spec of a phase is, once it ran."""
    return WORK / phase / "run-spec.json"


def python_of(phase: str) -> str | None:
    """Return the Python of the engine environment that `phase` made; None, said, if it did not."""
    if not spec_of(phase).is_file():
        print(f"no {spec_of(phase)}: the phase `{phase}` makes it, and the engine environment")
        return None
    spec = json.loads(spec_of(phase).read_text(encoding="utf-8"))
    return f"{spec['environment']['path']}/bin/python"


def install(python: str, lock: Path, folder: Path, *options: str) -> bool:
    """Install a hash lock into a folder, for `python`, without dependencies."""
    return run(
        *("uv", "pip", "install", "--quiet", "--python", python, "--target", str(folder)),
        *("--no-deps", "--require-hashes", *options, "-r", str(lock)),
        env=installer_settings(),
    )


def installer_settings() -> dict[str, str]:
    """The user's pip settings as uv's variables."""
    sys.path.insert(0, str(CHECKOUT / "src"))
    from kvseal.spec import installer

    return installer.translate(
        installer.read_pip_config(sys.executable), os.environ, locked=True
    ).variables


PHASES: dict[str, Callable[[], bool]] = {
    phase.__name__: phase
    for phase in (
        lint,
        unit,
        ansible,
        comparison,
        verifier,
        matrix,
        identity,
        backends,
        engines,
    )
}


ALL_PHASES = {**PHASES, tiers.__name__: tiers}


def main(names: Iterable[str]) -> int:
    """Run the phases and print a table of them; 0 when all passed, 2 for an unknown phase."""
    chosen = list(names) or list(PHASES)
    if chosen == ["all"]:
        chosen = list(ALL_PHASES)
    unknown = sorted(set(chosen) - set(ALL_PHASES))
    if unknown:
        known = ", ".join(ALL_PHASES)
        print(f"unknown phase {', '.join(unknown)}; known: {known}, all", file=sys.stderr)
        return 2
    shutil.rmtree(REPORTS, ignore_errors=True)
    table = []
    for name in chosen:
        print(f"\n=== {name}: {ALL_PHASES[name].__doc__}", flush=True)
        started = time.monotonic()
        passed = ALL_PHASES[name]()
        table.append((name, passed, time.monotonic() - started))
    print("\n=== make check")
    print(*failed_tests(REPORTS), sep="\n")
    for name, passed, seconds in table:
        print(f"{'PASS' if passed else 'FAIL'}  {name:12} {seconds:7.1f} s")
    total = sum(seconds for *_, seconds in table)
    print(f"      {'total':12} {total:7.1f} s", flush=True)
    return 0 if all(passed for _, passed, _ in table) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
