# SPDX-License-Identifier: Apache-2.0
"""The environment that `make` works with: built once a lock, then only entered.

Lives in the cache, outside the checkout, under a name made from the lock, the
Python and the checkout's path, so that another of any of these never meets a
stale one. Standard library only, for it runs before anything is installed;
scripts/bootstrap calls it with a Python that will do. It never installs into
a user's or the system's Python.

    controller.py [--dev] [COMMAND [ARGUMENT...]]

`--dev` means the environment of `make check`. Without a command it prints the
environment's path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "src"))
# The checkout may be read-only, and its __pycache__ is nobody's business here.
sys.dont_write_bytecode = True

from kvseal.errors import KvsealError, PrerequisiteError  # noqa: E402
from kvseal.spec import installer  # noqa: E402

STAMP = "kvseal-complete"
PROGRESS_SECONDS = 5


def environment_path(kind: str, cache: Path) -> Path:
    """Return where the environment `kind` ("controller" or "dev") belongs."""
    digest = hashlib.sha256()
    for name in ("uv.txt", f"{kind}.txt"):
        digest.update((CHECKOUT / "requirements" / name).read_bytes())
    for text in (sys.version, sys.executable, str(CHECKOUT)):
        digest.update(b"\0" + text.encode())
    return cache / f"{kind}-{digest.hexdigest()[:16]}"


def ensure(kind: str, cache: Path) -> Path:
    """Return the environment `kind`, having built it where it was missing or half-built.

    Raises:
        PrerequisiteError: a step failed; its last output is in the message.
    """
    path = environment_path(kind, cache)
    if (path / STAMP).is_file():
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f".{path.name}.lock").open("w")
    except OSError as error:
        raise PrerequisiteError(
            f"the cache folder can't be used: {error.strerror}",
            option="KVSEAL_CACHE",
            value=str(cache),
            expected="a folder that can be written",
            remedy="name another with KVSEAL_CACHE",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{kind} environment: another process is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path / STAMP).is_file():
            _build(kind, path)
    return path


def _build(kind: str, path: Path) -> None:
    if path.exists():
        _say(f"{kind} environment: removing a half-built one")
        shutil.rmtree(path)
    started = time.monotonic()
    requirements = CHECKOUT / "requirements"
    python = str(path / "bin" / "python")
    _say(f"{kind} environment: building {path}")
    _step("Python environment", [sys.executable, "-m", "venv", str(path)], {})
    _step(
        "installer",
        [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--no-deps",
            "-r",
            str(requirements / "uv.txt"),
        ],
        # A constraint of the user's can't loosen a hash, only contradict it.
        {"PIP_CONSTRAINT": os.devnull, "PIP_USER": "0"},
    )
    settings = installer.translate(installer.read_pip_config(python), os.environ, locked=True)
    _say(f"{kind} environment: {settings.summary}")
    _step(
        "packages",
        [
            str(path / "bin" / "uv"),
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--require-hashes",
            "-r",
            str(requirements / f"{kind}.txt"),
        ],
        settings.variables,
    )
    _add_kvseal(path)
    (path / STAMP).write_text(f"{CHECKOUT}\n", encoding="utf-8")
    _say(f"{kind} environment: ready after {time.monotonic() - started:.0f} s")


def _add_kvseal(path: Path) -> None:
    """Make `import kvseal` and the command `kvseal` mean the checkout's source."""
    site = next((path / "lib").glob("python*/site-packages"))
    (site / "kvseal-checkout.pth").write_text(f"{CHECKOUT / 'src'}\n", encoding="utf-8")
    command = path / "bin" / "kvseal"
    command.write_text(f'#!/bin/sh\nexec "{path}/bin/python" -m kvseal "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def _step(name: str, command: list[str], variables: dict[str, str]) -> None:
    """Run one step of the build, saying so every few seconds while it goes on."""
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables, "PYTHONNOUSERSITE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    output = ""
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                _say(f"  {name}: {time.monotonic() - started:.0f} s")
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        raise PrerequisiteError(
            f"the step “{name}” failed with status {process.returncode}\n"
            + "\n".join(output.strip().splitlines()[-15:]),
            option=" ".join(command),
            expected="packages of requirements/ on the index pip is set up for",
            remedy="check the network and pip's settings (`pip config list`), then run make again",
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Ensure the environment and become the command; without one print the path."""
    kind = "controller"
    if argv[:1] == ["--dev"]:
        kind, argv = "dev", argv[1:]
    try:
        path = ensure(kind, installer.cache_folder(os.environ))
    except KvsealError as error:
        _say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _say("interrupted; the half-built environment is rebuilt next time")
        return 130
    if not argv:
        print(path)
        return 0
    environment = dict(os.environ)
    environment["PATH"] = f"{path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment["VIRTUAL_ENV"] = str(path)
    environment["PYTHONNOUSERSITE"] = "1"
    # Compiled modules are kept, but in the cache: without them each start of an
    # engine compiles vLLM and torch anew, and beside their sources they would
    # litter the checkout.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # Ansible does not flush what it prints into a pipe, and a log must be live too.
    environment["PYTHONUNBUFFERED"] = "1"
    environment["PYTHONPYCACHEPREFIX"] = str(path.parent / "bytecode")
    environment.pop("PYTHONHOME", None)
    environment.pop("PYTHONPATH", None)
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 (make's own command line)
    except OSError as error:
        _say(f"{argv[0]} can't be run: {error.strerror}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
