# SPDX-License-Identifier: Apache-2.0
"""One contract for all L2 adapters of LMCache, run in an engine environment that is edited.

At the end there is one line for each entry of the registry: it ran, or its keys
alone were tried and why. KVSEAL_TEST_BACKEND_PACKAGES names the folder with the
packages of requirements/backends.txt, KVSEAL_TEST_LMCACHE_TREES the unpacked
LMCache releases as published.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kvseal.backends import registry
from kvseal.backends.backend import Backend, Running, Site

MODEL = "org/model-1"
VARIANTS = {letter: f"{letter}1{digit * 32}" for letter, digit in (("q", "a"), ("p", "b"))}
OTHER_VARIANTS = {letter: f"{letter}1{digit * 32}" for letter, digit in (("q", "c"), ("p", "d"))}
KINDS = ("ordinary", "salted", "q", "p", "salted-q")
PAYLOAD_BYTES = 8192
STATES = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STATES] = {}
    for folder in packages():
        sys.path.append(str(folder))


def packages() -> list[Path]:
    text = os.environ.get("KVSEAL_TEST_BACKEND_PACKAGES", "")
    return [Path(folder) for folder in text.split(os.pathsep) if folder]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    states = terminalreporter.config.stash[STATES]
    if states:
        terminalreporter.section(f"L2 adapters of LMCache {lmcache_version_of_this_python()}")
        for backend in registry.BACKENDS:
            terminalreporter.write_line(
                f"{backend.name:14} {states.get(backend.name, 'not asked for')}"
            )


@pytest.fixture(scope="session")
def states(request: pytest.FixtureRequest) -> dict[str, str]:
    """What is said of each backend at the end."""
    return request.config.stash[STATES]


def lmcache_version_of_this_python() -> str:
    try:
        return importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        return "?"


@pytest.fixture(scope="session")
def lmcache_version() -> str:
    """The version of the LMCache in this Python, which must be edited."""
    pytest.importorskip("lmcache", reason="the contract is run in an engine environment")
    assert pytest.importorskip("lmcache.v1.transform_identity"), "LMCache is not edited"
    return lmcache_version_of_this_python()


@dataclass(frozen=True)
class Identity:
    """An object key taken apart; `key` makes LMCache's own."""

    chunk_hash: bytes
    model: str = MODEL
    variant: str = ""
    rank: int = 0x01000100
    group: int = 0
    salt: str = ""

    @property
    def key(self) -> Any:
        from lmcache.v1.distributed.api import ObjectKey

        name = f"{self.model}##tv1-{self.variant}" if self.variant else self.model
        return ObjectKey(self.chunk_hash, name, self.rank, self.group, self.salt)

    def of_kind(self, kind: str) -> Identity:
        return replace(
            self,
            salt="tenant-1" if kind.startswith("salted") else "",
            variant=VARIANTS[kind[-1]] if kind[-1] in VARIANTS and kind != "ordinary" else "",
        )

    def others(self) -> dict[str, Identity]:
        """Identities that differ in one thing, by what it is; none may stand for this one."""
        found = {
            "other chunk": replace(self, chunk_hash=hashlib.sha256(self.chunk_hash).digest()),
            "other rank": replace(self, rank=0x02010201),
            "other group": replace(self, group=1),
            "other salt": replace(self, salt="tenant-2"),
            "other model": replace(self, model="org/model-2"),
            "its queries": replace(self, model=f"{self.model}##query"),
            "other q variant": replace(self, variant=OTHER_VARIANTS["q"]),
            "other p variant": replace(self, variant=OTHER_VARIANTS["p"]),
        }
        found |= {f"as {kind}": self.of_kind(kind) for kind in KINDS if self.of_kind(kind) != self}
        if self.variant:
            letter = "p" if self.variant[0] == "q" else "q"
            found["same digest, other scope"] = replace(self, variant=letter + self.variant[1:])
        return found

    def payload(self) -> bytes:
        """Bytes that no other identity has."""
        seed = hashlib.sha256(repr(self).encode()).digest()
        return b"".join(
            hashlib.sha256(seed + bytes([n // 256, n % 256])).digest()
            for n in range(PAYLOAD_BYTES // 32)
        )


@pytest.fixture
def identity(request: pytest.FixtureRequest) -> Identity:
    """An ordinary identity with a chunk that no other test has."""
    return Identity(hashlib.sha256(request.node.nodeid.encode()).digest())


@pytest.fixture(scope="module", params=registry.BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


@pytest.fixture(scope="module")
def running(
    backend: Backend,
    lmcache_version: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Running]:
    """The backend's server, up; without it the test is skipped, with what is missing."""
    states = request.config.stash[STATES]
    if backend.apart:
        states.setdefault(backend.name, f"apart ({backend.apart})")
        pytest.skip(states[backend.name])
    refusal = backend.refused(lmcache_version, salted=False)
    lacking = [] if refusal else backend.missing(sys.executable, packages())
    if refusal or lacking:
        reason = refusal.reason if refusal else "; ".join(map(str, lacking))
        states[backend.name] = f"key level only ({reason})"
        pytest.skip(states[backend.name])
    folder = tmp_path_factory.mktemp(backend.name)
    with ExitStack() as stack:
        up = stack.enter_context(
            backend.started(
                Site(
                    folder / "data",
                    run_id=f"contract-{os.getpid()}",
                    logs=folder / "logs",
                    packages=packages(),
                )
            )
        )
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        for name, text in up.environment.items():
            patched.setenv(name, text)
        for entry in up.python_path:
            patched.syspath_prepend(entry)
        refused = backend.refused(lmcache_version)
        states[backend.name] = f"ran, but no salted key ({refused.reason})" if refused else "ran"
        yield up


@pytest.fixture
def opened(running: Running) -> Callable[[], Any]:
    """Return a context manager that makes LMCache's adapter, as its server does at start."""
    from kvseal.backends.adapter import opened_adapter

    return lambda: opened_adapter(running.adapters[0], payload_bytes=PAYLOAD_BYTES)


@pytest.fixture(scope="session")
def other_process() -> Iterator[Callable[[Running, list[Any]], list[str | None]]]:
    """Ask a process that wrote nothing what it finds: the SHA-256 of each payload, or None."""
    command = [sys.executable, str(Path(__file__).with_name("reader.py"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(running: Running, keys: list[Any]) -> list[str | None]:
            order = {
                "adapter": running.adapters[0],
                "environment": dict(running.environment),
                "python_path": list(map(str, running.python_path)),
                "payload_bytes": PAYLOAD_BYTES,
                "keys": [
                    [k.chunk_hash.hex(), k.model_name, k.kv_rank, k.object_group_id, k.cache_salt]
                    for k in keys
                ],
            }
            print(json.dumps(order), file=process.stdin, flush=True)
            for line in process.stdout:
                if line.startswith("answer "):
                    return json.loads(line.removeprefix("answer "))
            pytest.fail("the reading process ended; its output is above")

        yield ask
        process.stdin.close()


@pytest.fixture
def kinds(backend: Backend, lmcache_version: str) -> tuple[str, ...]:
    """The kinds of identity that this LMCache can store in the backend."""
    if backend.refused(lmcache_version):
        return tuple(kind for kind in KINDS if not kind.startswith("salted"))
    return KINDS
