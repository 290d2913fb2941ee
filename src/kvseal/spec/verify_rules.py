# SPDX-License-Identifier: Apache-2.0
"""What a verification's settings demand of each other and of the engines.

The evidence contracts decide what goes together (kvseal.spec.contracts); here
each refusal names the Kconfig symbol. Each rule yields every problem it finds.
Called by kvseal.spec.rules alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec import contracts, pins
from kvseal.spec.options import KV_REUSE
from kvseal.spec.runspec import VerifySpec

ACCEPTANCE_COUNTS = (1, 3)
"""Reuse counts of the acceptance suite's probes, which its fixtures are recorded with."""

_Problems = Iterator[OptionError]
_MP = contracts.MULTIPROCESS.name


def problems(spec: VerifySpec) -> _Problems:
    """Yield what is wrong with contract, connector, suite and deviations."""
    for rule in (_contract, _native, _acceptance, _deviations):
        yield from rule(spec)


def _contract(spec: VerifySpec) -> _Problems:
    verify = spec.verify
    contract = contracts.CONTRACTS.get(verify.contract)
    if contract is None:
        return  # said by the bounds
    if spec.device not in contract.devices:
        other = {"strict": "cpu", "cpu": "strict"}.get(contract.name, "mp")
        yield KV_REUSE.wrong(
            "CONTRACT",
            f"this contract does not cover {spec.device}",
            contract.name,
            " or ".join(c.name for c in contracts.CONTRACTS.values() if spec.device in c.devices),
            f"set it to {other}, or {KV_REUSE.symbol('DEVICE_CPU')}="
            f"{'n' if spec.device == 'cpu' else 'y'}",
        )
    elif pins.find(spec.device, spec.vllm.version) and (
        spec.vllm.distribution,
        spec.vllm.version,
    ) != (wanted := contract.vllm[spec.device]):
        yield KV_REUSE.wrong(
            "VLLM_VERSION",
            f"the contract {contract.name} covers another version",
            spec.vllm.version,
            wanted[1],
            "set it to that",
        )
    yield from _lmcache(spec, contract)
    covered = [connector.name for connector in contract.connectors]
    # vLLM's own caching needs no server, so mp would claim evidence that nobody gives.
    allowed = covered if _MP in covered else [*covered, contracts.NO_CONNECTOR]
    if verify.connector in _connectors() and verify.connector not in allowed:
        yield KV_REUSE.wrong(
            "CONNECTOR",
            f"the contract {contract.name} does not cover this connector",
            verify.connector,
            " or ".join(allowed),
            f"change it, or {KV_REUSE.symbol('CONTRACT')}"
            + (" to mp" if verify.connector == _MP else ""),
        )


def _lmcache(spec: VerifySpec, contract: contracts.Contract) -> _Problems:
    pin, version = pins.find(spec.device, spec.vllm.version), spec.lmcache.version
    if spec.lmcache.source != "index" or pin is None or version not in pin.lmcache:
        return  # said by the engines' rules, or known once it is built
    if version not in contract.lmcache:
        yield KV_REUSE.wrong(
            "LMCACHE_VERSION",
            f"the contract {contract.name} does not cover this LMCache",
            version,
            " or ".join(release for release in contract.lmcache if release in pin.lmcache),
            "set it to that",
        )


def _native(spec: VerifySpec) -> _Problems:
    if spec.verify.connector == contracts.NO_CONNECTOR and spec.verify.compare_native:
        yield KV_REUSE.wrong(
            "COMPARE_NATIVE",
            "without a connector vLLM's own caching is under test already",
            True,
            f"n where {KV_REUSE.symbol('CONNECTOR')} is none",
            "set it to n, or choose a connector",
        )


def _acceptance(spec: VerifySpec) -> _Problems:
    verify = spec.verify
    if verify.suite != "acceptance":
        if verify.fixture:
            yield KV_REUSE.wrong(
                "FIXTURE",
                "only an acceptance run is held against a fixture",
                verify.fixture,
                f"empty where {KV_REUSE.symbol('SUITE')} is {verify.suite}",
                f"empty it, or set {KV_REUSE.symbol('SUITE')} to acceptance",
            )
        return
    if not verify.fixture:
        yield KV_REUSE.wrong(
            "FIXTURE",
            "an acceptance run is held against a fixture, and none is named",
            verify.fixture,
            "a fixture's file",
            f"name one, or choose another {KV_REUSE.symbol('SUITE')}",
        )
    if verify.connector == contracts.NO_CONNECTOR:
        yield KV_REUSE.wrong(
            "CONNECTOR",
            "an acceptance run is a pair: a connector, and vLLM's own caching",
            verify.connector,
            " or ".join(name for name in _connectors() if name != contracts.NO_CONNECTOR),
            f"choose one, or another {KV_REUSE.symbol('SUITE')}",
        )
    elif not verify.compare_native:
        yield KV_REUSE.wrong(
            "COMPARE_NATIVE",
            "an acceptance run is a pair: a connector, and vLLM's own caching",
            False,
            "y",
            f"set it to y, or choose another {KV_REUSE.symbol('SUITE')}",
        )
    for name, value, fixed in (
        ("REUSE_COUNTS", verify.reuse_counts, ACCEPTANCE_COUNTS),
        ("PROMPT_FORMAT", verify.prompt_format, ""),
    ):
        if value != fixed:
            yield KV_REUSE.wrong(
                name,
                "a fixture fixes the probes, reuse counts and formats included",
                ",".join(map(str, value)) if isinstance(value, tuple) else value,
                ",".join(map(str, fixed)) if isinstance(fixed, tuple) else "empty",
                f"set it back, or choose another {KV_REUSE.symbol('SUITE')}",
            )


def _deviations(spec: VerifySpec) -> _Problems:
    found = spec.verify.accept_deviations
    if set(found) - set(contracts.DEVIATIONS) or len(set(found)) < len(found):
        yield KV_REUSE.wrong(
            "ACCEPT_DEVIATIONS",
            "not a list of deviations, each there once",
            ",".join(found),
            f"some of {', '.join(contracts.DEVIATIONS)}, or empty",
            "take out what is not in that list",
        )


def _connectors() -> list[str]:
    named = [c.name for contract in contracts.CONTRACTS.values() for c in contract.connectors]
    return [*dict.fromkeys(named), contracts.NO_CONNECTOR]
