# SPDX-License-Identifier: Apache-2.0
"""Which Kconfig symbol becomes which run spec field: the only place that says so.

A symbol is `WORKFLOW_KNLP_LMCACHE_SNAPKV_<NAME>`, its variable in
extra_vars.yaml the same in lower case. kvseal.spec.translate reads this table,
tests hold Kconfig to it both ways. No default stands here: Kconfig has them.
"""

from __future__ import annotations

import dataclasses

from kvseal.errors import OptionError

ROOT = "WORKFLOW_KNLP_LMCACHE_SNAPKV"
"""The symbol that turns the workflow on, and the beginning of all the others."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One symbol. `kind` is bool, int or str; `field` the dotted run spec field.

    A field may be fed by several symbols, or by none directly: then `field`
    names what kvseal.spec.translate makes of it.
    """

    name: str
    kind: type
    field: str

    @property
    def symbol(self) -> str:
        """The Kconfig symbol, without CONFIG_."""
        return f"{ROOT}_{self.name}" if self.name else ROOT

    @property
    def variable(self) -> str:
        """The name in extra_vars.yaml."""
        return self.symbol.lower()


OPTIONS = (
    Option("", bool, "workflow"),
    Option("RUN", bool, "run"),
    Option("WORK_ROOT", str, "roots.work"),
    Option("RESULTS_ROOT", str, "roots.results"),
    Option("CACHE_ROOT", str, "roots.cache"),
    Option("DEVICE_CPU", bool, "device"),
    Option("PYTHON", str, "python.version"),
    Option("VLLM_VERSION", str, "vllm.version"),
    Option("DTYPE", str, "vllm.dtype"),
    Option("BLOCK_SIZE", int, "vllm.block_size_tokens"),
    Option("MAX_MODEL_LEN", int, "vllm.max_model_len_tokens"),
    Option("GPU_MEMORY_PERCENT", int, "vllm.gpu_memory_percent"),
    Option("CPU_KV_GB", int, "vllm.cpu_kv_gib"),
    Option("CUDA_VISIBLE_DEVICES", str, "vllm.visible_devices"),
    Option("VLLM_PORT", int, "vllm.port"),
    Option("VLLM_START_TIMEOUT", int, "vllm.start_timeout_seconds"),
    Option("LMCACHE_FROM_GIT", bool, "lmcache.source"),
    Option("LMCACHE_VERSION", str, "lmcache.version"),
    Option("LMCACHE_REPO", str, "lmcache.repository"),
    Option("LMCACHE_REF", str, "lmcache.ref"),
    Option("CHUNK_SIZE", int, "lmcache.chunk_size_tokens"),
    Option("L1_SIZE_GB", int, "lmcache.l1_gib"),
    Option("LMCACHE_PORT", int, "lmcache.port"),
    Option("LMCACHE_HTTP_PORT", int, "lmcache.http_port"),
    Option("LMCACHE_START_TIMEOUT", int, "lmcache.start_timeout_seconds"),
    Option("MODEL_SOURCE", str, "model.source"),
    Option("MODEL", str, "model.name"),
    Option("MODEL_REVISION", str, "model.revision"),
    Option("NEEDLE", bool, "workload.datasets"),
    Option("MULTI_NEEDLE", bool, "workload.datasets"),
    Option("KEY_VALUE", bool, "workload.datasets"),
    Option("VARIABLE_TRACKING", bool, "workload.datasets"),
    Option("DATASET_FILE", str, "workload.dataset_file"),
    Option("DATASET_HUB", str, "workload.dataset_hub"),
    Option("DATASET_REVISION", str, "workload.dataset_revision"),
    Option("NUM_PROMPTS", int, "workload.prompts"),
    Option("PROMPT_TOKENS", int, "workload.prompt_tokens"),
    Option("MAX_TOKENS", int, "workload.new_tokens"),
    Option("SEED", int, "workload.seed"),
    Option("DROP_PERCENT", int, "snapkv.drop_percent"),
    Option("WINDOW_SIZE", int, "snapkv.window_tokens"),
    Option("KERNEL_SIZE", int, "snapkv.kernel_tokens"),
    Option("REFERENCE", bool, "snapkv.reference"),
)

BY_NAME = {option.name: option for option in OPTIONS}
BY_VARIABLE = {option.variable: option for option in OPTIONS}

TASKS = ("needle", "multi_needle", "key_value", "variable_tracking")
"""The seeded tasks, in the order they are run in; each is an option in upper case."""


def symbol(name: str) -> str:
    """Return `CONFIG_…` for an option's short name, as it stands in .config.

    Raises:
        KeyError: no such option.
    """
    return f"CONFIG_{BY_NAME[name].symbol}"


def symbols_of(field: str) -> str:
    """Return the `CONFIG_…` symbols that feed a run spec field, comma-separated."""
    return ", ".join(f"CONFIG_{option.symbol}" for option in OPTIONS if option.field == field)


def wrong(name: str, message: str, value: object, expected: str, remedy: str) -> OptionError:
    """Return the error for option `name` (short name) holding `value`."""
    return OptionError(message, option=symbol(name), value=value, expected=expected, remedy=remedy)
