# SPDX-License-Identifier: Apache-2.0
"""What a verification was asked to do, checked as far as no machine is needed for it.

One class for both ways in: the options of `kvseal verify` and the `verify`
section of a run spec. Defaults are the ones of the verifier's public contract.
Files, packages and the model are looked at by kvseal.drivers.verify.preflight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvseal.errors import OptionError
from kvseal.spec import contracts
from kvseal.spec.rules import refuse

SUITES = ("standard", "smoke", "acceptance")
PROMPT_FORMATS = ("raw", "chat", "both")
DTYPES = ("float16", "bfloat16", "float32")
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

DEFAULT_REUSE_COUNTS = (1, 3)
DEFAULT_MAX_TOKENS = 16
DEFAULT_DTYPE = "float16"
DEFAULT_GPU_MEMORY = 0.45
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_SPAN_BLOCKS = 16
DEFAULT_SPAN_TOKENS = 256
DEFAULT_TENANT = "isolated-verifier"
DEFAULT_CACHE_GIB = 2
DEFAULT_CPU_KV_GIB = 2
DEFAULT_ENGINE_START_SECONDS = 1800
DEFAULT_SERVER_START_SECONDS = 180


@dataclass(frozen=True)
class VerifyRequest:
    """The options, with defaults filled in where they depend on nothing else.

    `model` and `tokenizer` are a hub name or a directory. `revision` is "" for a
    directory. `max_model_len` None is the model's own limit, `chunk_size` None
    LMCache's resolved one or a span of whole blocks. `native_prefix_caching`
    None means not asked for either way. `cache_gib` is an LMCache server's memory,
    `cpu_kv_gib` vLLM's own KV cache on a CPU. A port of 0 is replaced by a free one.
    """

    model: str
    model_revision: str
    tokenizer: str
    tokenizer_revision: str
    kv_connector: str
    contract: str = "strict"
    lmcache_config: Path | None = None
    compare_native: bool = False
    native_prefix_caching: bool | None = None
    fixture: Path | None = None
    suite: str = "standard"
    prompt_format: str | None = None
    reuse_counts: tuple[int, ...] = DEFAULT_REUSE_COUNTS
    max_tokens: int = DEFAULT_MAX_TOKENS
    seed: int = 0
    dtype: str = DEFAULT_DTYPE
    gpu_memory_utilization: float = DEFAULT_GPU_MEMORY
    max_model_len: int | None = None
    block_size: int = DEFAULT_BLOCK_TOKENS
    chunk_size: int | None = None
    tenant: str = DEFAULT_TENANT
    cache_gib: int = DEFAULT_CACHE_GIB
    cpu_kv_gib: int = DEFAULT_CPU_KV_GIB
    engine_start_seconds: int = DEFAULT_ENGINE_START_SECONDS
    server_start_seconds: int = DEFAULT_SERVER_START_SECONDS
    server_port: int = 0
    server_http_port: int = 0
    accepted_deviations: tuple[str, ...] = ()
    visible_devices: str | None = None

    @property
    def evidence_contract(self) -> contracts.Contract:
        """The evidence contract.

        Raises:
            OptionError: there is none of that name.
        """
        return contracts.find(self.contract)

    @property
    def connector(self) -> contracts.Connector | None:
        """The connector under test, None without one.

        Raises:
            OptionError: the contract does not cover it.
        """
        if self.kv_connector == contracts.NO_CONNECTOR:
            return None
        return self.evidence_contract.connector(self.kv_connector)

    @property
    def targets(self) -> tuple[str, ...]:
        """Cache configurations under test, in the order they run; empty for control-only."""
        connector = self.connector
        if connector is not None:
            return (connector.target, *((contracts.NATIVE,) if self.compare_native else ()))
        return () if self.native_prefix_caching is False else (contracts.NATIVE,)

    @property
    def formats(self) -> tuple[str, ...]:
        """Prompt formats: both for the standard suite, chat otherwise, unless asked for."""
        chosen = self.prompt_format or ("both" if self.suite == "standard" else "chat")
        return ("raw", "chat") if chosen == "both" else (chosen,)


def parse_reuse_counts(text: str) -> tuple[int, ...]:
    """Return the counts in comma-separated `text`.

    Raises:
        OptionError: it is not a list of distinct positive integers.
    """
    parts = [part.strip() for part in text.split(",")]
    counts = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]{1,6}", part))
    if len(counts) != len(parts) or min(counts, default=0) < 1 or len(set(counts)) != len(counts):
        raise OptionError(
            "reuse counts are not distinct positive integers",
            option="--reuse-counts",
            value=text,
            expected="for example 1,3",
            remedy="name each number of reuses once, separated by commas",
        )
    return counts


def parse_utilization(text: str) -> float:
    """Return the share of GPU memory in `text`.

    Raises:
        OptionError: it is not a number strictly between 0 and 1.
    """
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise OptionError(
            "share of GPU memory is not strictly between 0 and 1",
            option="--gpu-memory-utilization",
            value=text,
            expected="a number strictly between 0 and 1",
            remedy="for example 0.45",
        )
    return share


def check(request: VerifyRequest) -> None:
    """Refuse what can't be asked for, all of it at once.

    Raises:
        OptionError: naming each option with its value and what to do.
    """
    refuse(list(_problems(request)))


def _problems(request: VerifyRequest) -> Iterator[OptionError]:
    try:
        contracts.find(request.contract)
    except OptionError as error:
        yield error
        return
    try:
        connector = request.connector
    except OptionError as error:
        yield error
        return
    yield from _choices(request)
    yield from _numbers(request)
    yield from _connector(request, connector)
    yield from _acceptance(request, connector)


def _choices(request: VerifyRequest) -> Iterator[OptionError]:
    for option, value, known in (
        ("--suite", request.suite, SUITES),
        ("--prompt-format", request.prompt_format, (None, *PROMPT_FORMATS)),
        ("--dtype", request.dtype, DTYPES),
        *(
            ("--accept-deviation", deviation, contracts.DEVIATIONS)
            for deviation in request.accepted_deviations
        ),
    ):
        if value not in known:
            yield OptionError(
                "not one of the choices",
                option=option,
                value=value,
                expected=" or ".join(str(choice) for choice in known if choice),
                remedy="name one of these",
            )
    if not TENANT.fullmatch(request.tenant):
        yield OptionError(
            "tenant can't be part of a cache scope",
            option="--tenant",
            value=request.tenant,
            expected="1 to 64 letters, digits, dots, dashes and underscores",
            remedy="for example team-a",
        )


def _numbers(request: VerifyRequest) -> Iterator[OptionError]:
    for option, value, least in (
        ("--max-tokens", request.max_tokens, 1),
        ("--seed", request.seed, 0),
        ("--block-size", request.block_size, 1),
        ("--max-model-len", request.max_model_len, 1),
        ("--chunk-size", request.chunk_size, 1),
        ("--cache-gib", request.cache_gib, 1),
        ("--cpu-kv-gib", request.cpu_kv_gib, 1),
    ):
        if value is not None and value < least:
            yield OptionError(
                "number too small",
                option=option,
                value=value,
                expected=f"{least} or more",
                remedy="raise it",
            )
    if request.block_size > 0 and (request.chunk_size or 0) % request.block_size:
        yield OptionError(
            "a chunk must be whole blocks",
            option="--chunk-size",
            value=request.chunk_size,
            expected=f"a multiple of --block-size {request.block_size}",
            remedy="change one of the two",
        )


def _connector(
    request: VerifyRequest, connector: contracts.Connector | None
) -> Iterator[OptionError]:
    reads_file = connector is not None and connector.target == contracts.LMCACHE
    if reads_file and request.lmcache_config is None:
        yield OptionError(
            "a connector inside the engine takes its settings from a file",
            option="--lmcache-config",
            expected=f"LMCache's YAML for {request.kv_connector}",
            remedy="name the file; one line is enough: chunk_size: 256",
        )
    if not reads_file and request.lmcache_config is not None:
        yield OptionError(
            "nothing would read this file",
            option="--lmcache-config",
            value=str(request.lmcache_config),
            expected="no such option without an in-process LMCache",
            remedy="leave it out"
            if connector is None
            else "set the LMCache server's chunk with --chunk-size and its size with --cache-gib",
        )
    if connector is not None and request.native_prefix_caching:
        yield OptionError(
            "two caches at once: a result could not be attributed to either",
            option="--native-prefix-caching",
            value=f"with --kv-connector {request.kv_connector}",
            expected="one cache under test",
            remedy="leave it out; --compare-native tests both, one after the other",
        )
    if connector is None and request.compare_native:
        yield OptionError(
            "native prefix caching is the target already",
            option="--compare-native",
            value=f"with --kv-connector {contracts.NO_CONNECTOR}",
            remedy="leave it out",
        )


def _acceptance(
    request: VerifyRequest, connector: contracts.Connector | None
) -> Iterator[OptionError]:
    if request.suite != "acceptance":
        if request.fixture is not None:
            yield OptionError(
                "a fixture belongs to the acceptance suite",
                option="--fixture",
                value=str(request.fixture),
                remedy="add --suite acceptance, or leave it out",
            )
        return
    if request.fixture is None:
        yield OptionError(
            "the acceptance suite compares with recorded figures",
            option="--fixture",
            expected="a kvseal.verification-fixture.v1 file",
            remedy="name one; docs/formats/verification.md describes it",
        )
    if connector is None or not request.compare_native:
        yield OptionError(
            "the acceptance suite is paired: a connector and native prefix caching",
            option="--suite",
            value="acceptance",
            expected="--kv-connector with a connector, and --compare-native",
            remedy="add what is missing, or choose another suite",
        )
    if request.reuse_counts != DEFAULT_REUSE_COUNTS or request.prompt_format is not None:
        yield OptionError(
            "a fixture fixes the probes, reuse counts and formats included",
            option="--reuse-counts, --prompt-format",
            value=f"{request.reuse_counts}, {request.prompt_format}",
            remedy="leave both out with --suite acceptance",
        )
