# SPDX-License-Identifier: Apache-2.0
"""A server that was started and is waited for: what vLLM's and LMCache's have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kvseal.process import EngineProcess


class Endpoint(Protocol):
    """Where a server is, which knows how to ask it whether it is ready."""

    def ready(self) -> bool:
        """True once the server says so itself."""
        ...


E = TypeVar("E", bound=Endpoint)


@dataclass(frozen=True)
class StartedServer(Generic[E]):
    """A started server; `timeout_option` is the Kconfig symbol of its start timeout."""

    endpoint: E
    process: EngineProcess
    timeout_seconds: float
    timeout_option: str

    def wait_ready(self) -> None:
        """Wait until the server reports itself ready.

        Raises:
            EngineError: when it exits or stays unready; the message ends with its last log lines.
        """
        self.process.wait_ready(
            self.endpoint.ready, timeout_seconds=self.timeout_seconds, option=self.timeout_option
        )
