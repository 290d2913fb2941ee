# SPDX-License-Identifier: Apache-2.0
"""The sections of a run spec, a dataclass each; kvseal.spec.runspec puts them together.

Plain values without defaults. docs/formats/run-spec.md says what each field means.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Program:
    """The kvseal that runs on the node; `archive` is an absolute path on the controller."""

    version: str
    archive: str
    archive_sha256: str


@dataclasses.dataclass(frozen=True)
class Roots:
    """Absolute folders: `work` and `cache` on the node, `results` on the controller."""

    work: str
    results: str
    cache: str


@dataclasses.dataclass(frozen=True)
class Python:
    """The Python of the engine environment, as `major.minor`."""

    version: str


@dataclasses.dataclass(frozen=True)
class Environment:
    """The engine environment: hash lock, what is installed before it, and where.

    `lock` is an absolute path on the controller. `torch` is a requirement to
    install before the lock, empty where the lock holds torch itself.
    """

    name: str
    path: str
    lock: str
    lock_sha256: str
    torch: str


@dataclasses.dataclass(frozen=True)
class Vllm:
    """The vLLM that serves the model. `port` is 0 where it serves nobody but its own process."""

    distribution: str
    version: str
    dtype: str
    block_size_tokens: int
    max_model_len_tokens: int
    gpu_memory_percent: int
    cpu_kv_gib: int
    visible_devices: str
    port: int
    start_timeout_seconds: int


@dataclasses.dataclass(frozen=True)
class Lmcache:
    """The LMCache server and where it comes from."""

    source: str
    version: str
    repository: str
    ref: str
    chunk_size_tokens: int
    l1_gib: int
    port: int
    http_port: int
    start_timeout_seconds: int


@dataclasses.dataclass(frozen=True)
class Model:
    """The model's weights: `package`, `hub` or `path`."""

    source: str
    name: str
    revision: str


@dataclasses.dataclass(frozen=True)
class Workload:
    """The prompts: seeded tasks, or one named data set in their place."""

    datasets: tuple[str, ...]
    dataset_file: str
    dataset_hub: str
    dataset_revision: str
    prompts: int
    prompt_tokens: int
    new_tokens: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Snapkv:
    """The compaction under test."""

    drop_percent: int
    window_tokens: int
    kernel_tokens: int
    reference: bool


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The negative matrix: where its cases are run, and how much KV they are about.

    `backends` and `restarts` are some of kvseal.spec.options' BACKENDS and RESTARTS,
    `cases` names of cases, none for every case there is.
    `identity` is "variant" or "none". `mixed_requests` is 0 for no mixed mode.
    """

    backends: tuple[str, ...]
    restarts: tuple[str, ...]
    cases: tuple[str, ...]
    identity: str
    mixed_requests: int
    prompt_tokens: int
    new_tokens: int
    seed: int
    drop_percent: int
    window_tokens: int
    kernel_tokens: int


@dataclasses.dataclass(frozen=True)
class Verify:
    """The verification: what may run, which cache is under test, with which prompts.

    `contract` is an evidence contract, `connector` a KV connector or "none".
    `prompt_format` is "raw", "chat", "both" or empty for the suite's own.
    `fixture` is an absolute path on the controller, whose file the node has as
    `fixture.json` in the work folder; or the name of one that comes with kvseal; or empty.
    """

    contract: str
    connector: str
    compare_native: bool
    suite: str
    prompt_format: str
    reuse_counts: tuple[int, ...]
    max_tokens: int
    seed: int
    tenant: str
    fixture: str
    accept_deviations: tuple[str, ...]
