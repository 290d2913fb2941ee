# SPDX-License-Identifier: Apache-2.0
"""Which Kconfig symbol becomes which run spec field: the only place that says so.

A symbol is `<root>_<NAME>`, where the root is the symbol that turns a workflow
on; its variable in extra_vars.yaml is the same in lower case.
kvseal.spec.translate reads these tables, tests hold Kconfig to them both ways.
No default stands here: Kconfig has them.
"""

from __future__ import annotations

import dataclasses

from kvseal.errors import OptionError


@dataclasses.dataclass(frozen=True)
class Option:
    """One symbol. `kind` is bool, int or str; `field` the dotted run spec field.

    A field may be fed by several symbols, or by none directly: then `field`
    names what kvseal.spec.translate makes of it.
    """

    root: str
    name: str
    kind: type
    field: str

    @property
    def symbol(self) -> str:
        """The Kconfig symbol, without CONFIG_."""
        return f"{self.root}_{self.name}" if self.name else self.root

    @property
    def variable(self) -> str:
        """The name in extra_vars.yaml."""
        return self.symbol.lower()


@dataclasses.dataclass(frozen=True)
class Workflow:
    """A workflow: its name in specs, folders and make targets, its root symbol, its options.

    `codemods` are the only edits its engine environment may carry, unless its
    run spec says otherwise (`codemods_of`); None means every edit there is.
    `lmcache` are the only releases of LMCache it was tried with; None means those
    of the engine's pin, less what rules of its own say.
    """

    name: str
    root: str
    options: tuple[Option, ...]
    codemods: tuple[str, ...] | None = None
    lmcache: tuple[str, ...] | None = None

    def symbol(self, name: str) -> str:
        """Return `CONFIG_…` for an option's short name, as it stands in .config.

        Raises:
            KeyError: no such option.
        """
        return f"CONFIG_{ {option.name: option for option in self.options}[name].symbol }"

    def symbols_of(self, field: str) -> str:
        """Return the `CONFIG_…` symbols that feed a run spec field, comma-separated."""
        return ", ".join(
            f"CONFIG_{option.symbol}" for option in self.options if option.field == field
        )

    def wrong(
        self, name: str, message: str, value: object, expected: str, remedy: str
    ) -> OptionError:
        """Return the error for option `name` (short name) holding `value`."""
        return OptionError(
            message, option=self.symbol(name), value=value, expected=expected, remedy=remedy
        )


_Rows = tuple[tuple[str, type, str], ...]

_COMMON: _Rows = (
    ("", bool, "workflow"),
    ("RUN", bool, "run"),
    ("WORK_ROOT", str, "roots.work"),
    ("RESULTS_ROOT", str, "roots.results"),
    ("CACHE_ROOT", str, "roots.cache"),
    ("DEVICE_CPU", bool, "device"),
    ("PYTHON", str, "python.version"),
    ("VLLM_VERSION", str, "vllm.version"),
    ("DTYPE", str, "vllm.dtype"),
    ("BLOCK_SIZE", int, "vllm.block_size_tokens"),
    ("MAX_MODEL_LEN", int, "vllm.max_model_len_tokens"),
    ("GPU_MEMORY_PERCENT", int, "vllm.gpu_memory_percent"),
    ("CPU_KV_GB", int, "vllm.cpu_kv_gib"),
    ("CUDA_VISIBLE_DEVICES", str, "vllm.visible_devices"),
    ("VLLM_START_TIMEOUT", int, "vllm.start_timeout_seconds"),
    ("LMCACHE_FROM_GIT", bool, "lmcache.source"),
    ("LMCACHE_VERSION", str, "lmcache.version"),
    ("LMCACHE_REPO", str, "lmcache.repository"),
    ("LMCACHE_REF", str, "lmcache.ref"),
    ("CHUNK_SIZE", int, "lmcache.chunk_size_tokens"),
    ("L1_SIZE_GB", int, "lmcache.l1_gib"),
    ("LMCACHE_PORT", int, "lmcache.port"),
    ("LMCACHE_HTTP_PORT", int, "lmcache.http_port"),
    ("LMCACHE_START_TIMEOUT", int, "lmcache.start_timeout_seconds"),
    ("MODEL_SOURCE", str, "model.source"),
    ("MODEL", str, "model.name"),
    ("MODEL_REVISION", str, "model.revision"),
)

_LMCACHE_SNAPKV: _Rows = (
    ("VLLM_PORT", int, "vllm.port"),
    ("NEEDLE", bool, "workload.datasets"),
    ("MULTI_NEEDLE", bool, "workload.datasets"),
    ("KEY_VALUE", bool, "workload.datasets"),
    ("VARIABLE_TRACKING", bool, "workload.datasets"),
    ("DATASET_FILE", str, "workload.dataset_file"),
    ("DATASET_HUB", str, "workload.dataset_hub"),
    ("DATASET_REVISION", str, "workload.dataset_revision"),
    ("NUM_PROMPTS", int, "workload.prompts"),
    ("PROMPT_TOKENS", int, "workload.prompt_tokens"),
    ("MAX_TOKENS", int, "workload.new_tokens"),
    ("SEED", int, "workload.seed"),
    ("DROP_PERCENT", int, "snapkv.drop_percent"),
    ("WINDOW_SIZE", int, "snapkv.window_tokens"),
    ("KERNEL_SIZE", int, "snapkv.kernel_tokens"),
    ("REFERENCE", bool, "snapkv.reference"),
)

_KV_REUSE: _Rows = (
    ("CONTRACT", str, "verify.contract"),
    ("CONNECTOR", str, "verify.connector"),
    ("COMPARE_NATIVE", bool, "verify.compare_native"),
    ("SUITE", str, "verify.suite"),
    ("PROMPT_FORMAT", str, "verify.prompt_format"),
    ("REUSE_COUNTS", str, "verify.reuse_counts"),
    ("MAX_TOKENS", int, "verify.max_tokens"),
    ("SEED", int, "verify.seed"),
    ("TENANT", str, "verify.tenant"),
    ("FIXTURE", str, "verify.fixture"),
    ("ACCEPT_DEVIATIONS", str, "verify.accept_deviations"),
)


_LMCACHE_SNAPKV_MATRIX: _Rows = (
    ("BACKEND_PROCESS", bool, "matrix.backends"),
    ("BACKEND_MP", bool, "matrix.backends"),
    ("BACKEND_NATIVE", bool, "matrix.backends"),
    ("BACKEND_FS", bool, "matrix.backends"),
    ("BACKEND_FS_NATIVE", bool, "matrix.backends"),
    ("BACKEND_RESP", bool, "matrix.backends"),
    ("BACKEND_VALKEY", bool, "matrix.backends"),
    ("BACKEND_S3", bool, "matrix.backends"),
    ("BACKEND_S3_RCLONE", bool, "matrix.backends"),
    ("BACKEND_DAX", bool, "matrix.backends"),
    ("BACKEND_MOCK", bool, "matrix.backends"),
    ("BACKEND_PLUGIN", bool, "matrix.backends"),
    ("BACKEND_NATIVE_PLUGIN", bool, "matrix.backends"),
    ("BACKEND_FAULT_INJECT", bool, "matrix.backends"),
    ("RESTART_ENGINE", bool, "matrix.restarts"),
    ("RESTART_SERVER", bool, "matrix.restarts"),
    ("RESTART_BOTH", bool, "matrix.restarts"),
    ("CASES", str, "matrix.cases"),
    ("STOCK", bool, "matrix.identity"),
    ("MIXED_REQUESTS", int, "matrix.mixed_requests"),
    ("PROMPT_TOKENS", int, "matrix.prompt_tokens"),
    ("MAX_TOKENS", int, "matrix.new_tokens"),
    ("SEED", int, "matrix.seed"),
    ("DROP_PERCENT", int, "matrix.drop_percent"),
    ("WINDOW_SIZE", int, "matrix.window_tokens"),
    ("KERNEL_SIZE", int, "matrix.kernel_tokens"),
)


def _workflow(
    name: str,
    root: str,
    own: _Rows,
    codemods: tuple[str, ...] | None,
    lmcache: tuple[str, ...] | None = None,
) -> Workflow:
    options = tuple(Option(root, *row) for row in _COMMON + own)
    return Workflow(name, root, options, codemods, lmcache)


LMCACHE_SNAPKV = _workflow(
    "lmcache-snapkv",
    "WORKFLOW_KNLP_LMCACHE_SNAPKV",
    _LMCACHE_SNAPKV,
    # Named one by one, so that an edit made for another workflow stays out.
    ("vllm_distribution_name", "vllm_query_export"),
    ("0.5.4",),
)

KV_REUSE = _workflow(
    "kv-reuse",
    "WORKFLOW_KNLP_KV_REUSE",
    _KV_REUSE,
    # The verifier reports every edited file of vLLM or LMCache as a deviation
    # from its contract; this one adds a name and edits none.
    ("vllm_distribution_name",),
)

LMCACHE_SNAPKV_MATRIX = _workflow(
    "lmcache-snapkv-matrix",
    "WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX",
    _LMCACHE_SNAPKV_MATRIX,
    # All there are: transform identity is what the matrix tests.
    None,
)

WORKFLOWS = {
    workflow.name: workflow for workflow in (LMCACHE_SNAPKV, KV_REUSE, LMCACHE_SNAPKV_MATRIX)
}

VARIANT, NO_IDENTITY = "variant", "none"
"""`matrix.identity`: KV is named by its exact variant, or not at all, as LMCache ships."""

BACKENDS = (
    "process", "mp", "native", "fs", "fs_native", "resp", "valkey", "s3", "s3_rclone", "dax",
    "mock", "plugin", "native_plugin", "fault_inject",
)  # fmt: skip
RESTARTS = ("engine", "server", "both")
"""What the matrix is run over, in this order; each is an option, as BACKEND_MP or RESTART_BOTH."""

TASKS = ("needle", "multi_needle", "key_value", "variable_tracking")
"""The seeded tasks, in the order they are run in; each is an option in upper case."""


def codemods_of(workflow: str, identity: str = VARIANT) -> tuple[str, ...] | None:
    """Return the only edits that an engine environment of `workflow` may carry; None: all.

    identity: `matrix.identity` of the matrix, whose stock mode shares the
        comparison's environment; no other workflow has a choice.

    Raises:
        KeyError: no such workflow; a loaded run spec names one that there is.
    """
    if identity == NO_IDENTITY:
        return LMCACHE_SNAPKV.codemods
    return WORKFLOWS[workflow].codemods


def symbols_of(field: str, workflow: str) -> str:
    """Return the `CONFIG_…` symbols of `workflow` that feed a field, comma-separated.

    Raises:
        KeyError: no such workflow; a loaded run spec names one that there is.
    """
    return WORKFLOWS[workflow].symbols_of(field)
