# SPDX-License-Identifier: Apache-2.0
"""All that is decided before an engine starts; what is wrong ends here, with exit status 2.

From a request to probes, model, packages and settings as they are on this
machine. Cheap checks first. Writes nothing and starts nothing.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from kvseal.canonical import digest
from kvseal.checkers.verification.fixture import Fixture, load_fixture
from kvseal.drivers.verify import identity, lmcache_settings
from kvseal.drivers.verify.ground import Ground, stand_on
from kvseal.host import installed, machine, nvidia
from kvseal.models.directory import ModelDirectory
from kvseal.spec.contracts import NATIVE, Contract
from kvseal.spec.verify_request import (
    DEFAULT_SPAN_BLOCKS,
    DEFAULT_SPAN_TOKENS,
    VerifyRequest,
    check,
)
from kvseal.workload.probes import Geometry, Probe, build_probes, load_tokenizer, manifest


@dataclass(frozen=True)
class Prepared:
    """Everything a verification needs, decided."""

    request: VerifyRequest
    contract: Contract
    ground: Ground
    model: ModelDirectory
    tokenizer: ModelDirectory
    settings: lmcache_settings.Settings | None
    geometry: Geometry
    probes: tuple[Probe, ...]
    fixture: Fixture | None
    fixture_document: dict[str, Any] | None

    @property
    def targets(self) -> tuple[str, ...]:
        """Cache configurations under test."""
        return self.request.targets

    def manifest(self) -> dict[str, Any]:
        """Return the probe manifest."""
        request = self.request
        return manifest(
            self.probes,
            suite=request.suite,
            seed=request.seed,
            max_tokens=request.max_tokens,
            geometry=self.geometry,
            targets=self.targets,
        )

    def request_json(self, evidence_directory: str) -> dict[str, Any]:
        """Return the request as it took effect, for the report."""
        request = self.request
        on_gpu = self.ground.device == "cuda"
        return {
            "model": identity.described(request.model, request.model_revision, self.model),
            "tokenizer": identity.described(
                request.tokenizer, request.tokenizer_revision, self.tokenizer
            ),
            "kv_connector": request.kv_connector,
            "compare_native": request.compare_native,
            "native_prefix_caching": NATIVE in self.targets,
            "targets": list(self.targets),
            "lmcache_config": None if self.settings is None else self.settings.to_json(),
            "notes": [] if self.settings is None else list(self.settings.notes),
            "suite": request.suite,
            "prompt_formats": list(request.formats),
            "reuse_counts": list(request.reuse_counts),
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "dtype": request.dtype,
            "gpu_memory_utilization": request.gpu_memory_utilization if on_gpu else None,
            "max_model_len": self.geometry.max_model_len,
            "block_size": self.geometry.block_tokens,
            "chunk_size": self.geometry.chunk_tokens,
            "cache_gib": request.cache_gib,
            "cpu_kv_gib": request.cpu_kv_gib,
            "tenant": request.tenant,
            "contract": self.contract.name,
            "accepted_deviations": list(request.accepted_deviations),
            "fixture": self._fixture_json(),
            "evidence_directory": evidence_directory,
        }

    def dry_run(self) -> dict[str, Any]:
        """Return what would be run, and that nothing was."""
        return {
            "verified": False,
            "contract": self.contract_json(),
            "request": self.request_json(""),
            "manifest": self.manifest(),
        }

    def _fixture_json(self) -> dict[str, Any] | None:
        if self.fixture is None:
            return None
        return {
            "path": str(self.request.fixture),
            "name": self.fixture.name,
            "sha256": digest(self.fixture_document),
            "document": self.fixture_document,
        }

    def contract_json(self) -> dict[str, Any]:
        """Return the contract and how this machine deviates from it."""
        return {**self.contract.to_json(), "deviations": self.ground.deviations}

    def environment_json(self) -> dict[str, Any]:
        """Return versions, machine and GPU."""
        return {
            **self.ground.to_json(),
            "python": platform.python_version(),
            "all_distributions": installed.versions(),
            "host": host_facts(),
            "gpus": nvidia.gpus().to_json(),
        }


def host_facts() -> dict[str, Any]:
    """Return what of this machine can change an answer."""
    return {
        "system": machine.system().to_json(),
        "kernel": machine.kernel().to_json(),
        "architecture": machine.architecture().to_json(),
        "cpu_model": machine.cpu_model().to_json(),
        "cpu_flags": machine.cpu_flags().to_json(),
        "cpu_count": machine.cpu_count().to_json(),
    }


def prepare(request: VerifyRequest) -> Prepared:
    """Decide everything, or refuse.

    Raises:
        OptionError, PrerequisiteError: the first thing that stands in the way.
    """
    check(request)
    identity.refuse(request.model, request.model_revision, option="--model")
    identity.refuse(request.tokenizer, request.tokenizer_revision, option="--tokenizer")
    contract, connector = request.evidence_contract, request.connector
    fixture, document = (None, None) if request.fixture is None else load_fixture(request.fixture)
    ground = stand_on(
        contract, uses_lmcache=connector is not None, accepted=request.accepted_deviations
    )
    settings = None
    if request.lmcache_config is not None:
        settings = lmcache_settings.resolve(
            request.lmcache_config.resolve(),
            required=contract.settings,
            chunk_size=request.chunk_size,
        )
    model = identity.resolve(
        request.model,
        request.model_revision,
        option="--model",
        required=identity.MODEL_FILES,
        remedy="name a model in Hugging Face form with safetensors weights",
    )
    tokenizer = identity.resolve_tokenizer(request, model)
    geometry = Geometry(
        chunk_tokens=_chunk(request, settings),
        block_tokens=request.block_size,
        max_model_len=identity.position_limit(model, request.max_model_len),
    )
    probes = build_probes(
        request.suite,
        formats=request.formats,
        reuse_counts=request.reuse_counts,
        geometry=geometry,
        max_tokens=request.max_tokens,
        seed=request.seed,
        tokenizer=load_tokenizer(
            tokenizer.path, prompt_format=request.prompt_format or "+".join(request.formats)
        ),
        lengths=None if fixture is None else _lengths(fixture, request),
    )
    return Prepared(
        request,
        contract,
        ground,
        model,
        tokenizer,
        settings,
        geometry,
        probes,
        fixture,
        document,
    )


def _lengths(fixture: Fixture, request: VerifyRequest) -> list[dict[str, Any]]:
    """The fixture's probes as rows; one without a format takes the suite's."""
    return [
        {
            "tokens": probe.tokens,
            "reuse_count": probe.reuse_count,
            "format": probe.format or request.formats[0],
        }
        for probe in fixture.probes
    ]


def _chunk(request: VerifyRequest, settings: lmcache_settings.Settings | None) -> int:
    if settings is not None:
        return settings.chunk_tokens
    if request.chunk_size is not None:
        return request.chunk_size
    return (
        max(DEFAULT_SPAN_TOKENS, request.block_size * DEFAULT_SPAN_BLOCKS)
        if (DEFAULT_SPAN_TOKENS % request.block_size)
        else DEFAULT_SPAN_TOKENS
    )
