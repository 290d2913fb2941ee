# SPDX-License-Identifier: Apache-2.0
"""One L2 adapter of LMCache: what it needs, where its keys are made, how it is started.

    backend = registry.backend("resp")
    backend.require(version="0.5.6", python=python)
    with backend.started(Site(folder, run_id, logs)) as running:
        server = CacheServer(…, l2_adapters=running.adapters)
        …
        running.restart()

A backend starts servers and writes configurations; it never stores, reads or
judges KV. Called by the matrix driver, the contract suite and bench/backends.py.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from kvseal.backends.needs import Missing, Need, missing
from kvseal.errors import OptionError, PrerequisiteError

VERSIONS = ("0.5.4", "0.5.5", "0.5.6")
"""LMCache releases whose adapters were read; those with an engine environment are run as well."""


@dataclass(frozen=True)
class KeyText:
    """Where LMCache makes the text of an object key for an adapter.

    `symbol` is a function or `Class.method` in `file` (below LMCache's package).
    Both empty: the adapter keeps the ObjectKey itself, in memory, and writes no text.
    """

    file: str = ""
    symbol: str = ""


IN_MEMORY = KeyText()
NATIVE = KeyText(
    "v1/distributed/l2_adapters/native_connector_l2_adapter.py", "_object_key_to_string"
)
"""The text that every native (C++) connector is given."""


@dataclass(frozen=True)
class Refusal:
    """Why a release of LMCache can't be used here, or (`salted_only`) not with a salt.

    `leaks`: it would not fail, but mix what differs in the salt.
    """

    reason: str
    remedy: str
    salted_only: bool = False
    leaks: bool = False


@dataclass(frozen=True)
class Site:
    """Where a backend is started.

    folder: where data goes; this backend's own.
    run_id, logs: of the run that starts it.
    python: runs LMCache and, where there is one, a server written in Python.
    packages: folders with the packages of requirements/backends.txt.
    """

    folder: Path
    run_id: str
    logs: Path
    python: str = sys.executable
    packages: Sequence[Path] = ()


@dataclass
class Running:
    """A backend that is up: what LMCache's server has to be told.

    `adapters` are values of `--l2-adapter`, `environment` and `python_path` go to
    the process of LMCache.
    """

    adapters: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[Path, ...] = ()
    on_restart: Callable[[], None] | None = None
    on_wipe: Callable[[], None] | None = None
    on_size: Callable[[], int] | None = None

    def restart(self) -> None:
        """Stop the backend's own server as an administrator would, and start it on the same data.

        Raises:
            OptionError: the backend has no server of its own (`Backend.own_server` is empty).
            EngineError: the server did not come up again.
        """
        self._act(self.on_restart, "restart")()

    def wipe(self) -> None:
        """Remove all that is stored; LMCache must not be using it."""
        self._act(self.on_wipe, "wipe")()

    def size(self) -> int:
        """Return the bytes that are stored, keys included where they can't be told apart."""
        sized: int = self._act(self.on_size, "size")()
        return sized

    def _act(self, act: Callable[[], Any] | None, name: str) -> Callable[[], Any]:
        if act is None:
            raise OptionError(
                f"this backend has no {name}",
                option="backend",
                value=self.adapters[0].get("type") if self.adapters else None,
                expected=f"a backend that can {name}",
            )
        return act


class Backend(ABC):
    """What kvseal knows of one L2 adapter; one subclass a file, one instance in the registry."""

    name: ClassVar[str]
    adapter_type: ClassVar[str]
    """LMCache's name of the adapter: `type` in its JSON. Empty where LMCache adds it itself."""

    own_server: ClassVar[str] = ""
    """The server it talks to, in words; empty when there is none."""
    lasts_over_lmcache: ClassVar[bool]
    """Whether what is stored is found again after LMCache's server was restarted."""
    lasts_over_own: ClassVar[bool | None] = None
    """The same for a restart of its own server; None when it has none."""
    loads_absent: ClassVar[bool] = True
    """Whether a load of what is not there ends, as not loaded; LMCache looks up before it loads."""
    deletes: ClassVar[bool] = True
    """Whether LMCache can remove an entry from it."""
    limits: ClassVar[str] = ""
    """What a user has to know besides, in words."""

    confuses: ClassVar[tuple[str, str] | None] = None
    """Two texts that its key's text does not tell apart in a model's name, as stock LMCache."""
    apart: ClassVar[str] = ""
    """Why the common contract does not apply to it, and what is tried instead."""

    needs: ClassVar[tuple[Need, ...]] = ()
    packages: ClassVar[bool] = False
    """Whether it uses packages of requirements/backends.txt."""
    refusals: ClassVar[Mapping[str, Refusal]] = {}

    @abstractmethod
    def key_text(self, version: str) -> KeyText:
        """Return where `version` of LMCache makes the key's text for this adapter."""

    def refused(self, version: str, *, salted: bool = True) -> Refusal | None:
        """Return why `version` can't be used, None when it can; `salted`: do keys have a salt."""
        if version not in VERSIONS:
            return Refusal(
                f"LMCache {version} was not read: where it makes its keys is not known",
                f"use one of {', '.join(VERSIONS)}",
            )
        refusal = self.refusals.get(version)
        if refusal is not None and refusal.salted_only and not salted:
            return None
        return refusal

    def missing(self, python: str, python_path: Sequence[Path] = ()) -> list[Missing]:
        """Return what this machine lacks, for LMCache run by `python`; empty: it can run.

        Raises:
            PrerequisiteError: `python` can't be run.
        """
        return missing(self.needs, python, python_path)

    def require(
        self,
        *,
        version: str,
        python: str,
        python_path: Sequence[Path] = (),
        salted: bool = True,
    ) -> None:
        """Do nothing where this backend can be used.

        Raises:
            OptionError: this LMCache can't be used with it.
            PrerequisiteError: the machine lacks something; all of it is named.
        """
        refusal = self.refused(version, salted=salted)
        if refusal is not None:
            raise OptionError(
                f"backend {self.name} can't be used with LMCache {version}: {refusal.reason}",
                option="backend",
                value=self.name,
                expected="a backend and an LMCache that keep every identity apart",
                remedy=refusal.remedy,
            )
        lacking = self.missing(python, python_path)
        if lacking:
            raise PrerequisiteError(
                f"backend {self.name} can't run here: {'; '.join(item.what for item in lacking)}",
                option="backend",
                value=self.name,
                remedy="; ".join(dict.fromkeys(item.remedy for item in lacking)),
            )

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Start what the adapter talks to, for the length of a `with` block.

        Raises:
            PrerequisiteError: a program is not installed, or this backend is known by
                its keys alone.
            EngineError: the server did not come up.
        """
        raise PrerequisiteError(
            f"backend {self.name} can't be started here",
            option="backend",
            value=self.name,
            expected="a backend whose server kvseal can start on loopback",
            remedy="; ".join(need.remedy for need in self.needs),
        )
        yield
