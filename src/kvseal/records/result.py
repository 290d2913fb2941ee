# SPDX-License-Identifier: Apache-2.0
"""result.json of a comparison run, put together from spec, history and judgement.

Nothing is measured or decided here, and no clock is read, so the same three
inputs always give the same document: `kvseal check` makes it again and
compares. Every key that a KNLP result has is kept, with its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvseal.records.history import Event, History
from kvseal.spec.runspec import RunSpec

SCHEMA = "kvseal.compare-result.v1"
SCHEMA_VERSION = 1
"""KNLP's own version number; its readers look at this one."""

VERSION_FIELDS = (
    "lmcache_revision", "vllm_version", "lmcache_version", "torch_version", "model_revision",
    "kvseal_version",
)  # fmt: skip


def dataset_name(spec: RunSpec) -> str:
    """Return what the prompts were made from, as one text."""
    work = spec.workload
    if work.dataset_hub:
        return f"{work.dataset_hub}@{work.dataset_revision}"
    return work.dataset_file or "+".join(work.datasets)


def assemble(spec: RunSpec, history: History, judgement: Mapping[str, Any]) -> dict[str, Any]:
    """Return result.json as a document.

    `judgement` is `kvseal.checkers.compare.Judgement.to_json()`. What the
    history does not hold is null, so an interrupted run has a whole document
    too. `created_at` is the time of the last event.
    """
    environment = next(iter(history.named("environment")), None)
    prompts = judgement["prompts"]
    return {
        "schema_version": SCHEMA_VERSION,
        "schema": SCHEMA,
        "created_at": history.events[-1].at if history.events else None,
        "verdict": judgement["verdict"],
        "reasons": judgement["reasons"],
        "model": spec.model.name,
        "model_source": spec.model.source,
        "dataset": dataset_name(spec),
        "num_prompts": len(prompts),
        "prompt_tokens": [prompt["prompt_tokens"] for prompt in prompts],
        "new_tokens": spec.workload.new_tokens,
        "seed": spec.workload.seed,
        "drop_ratio": spec.snapkv.drop_percent / 100,
        "window_size": spec.snapkv.window_tokens,
        "kernel_size": spec.snapkv.kernel_tokens,
        "chunk_size": spec.lmcache.chunk_size_tokens,
        "dtype": spec.vllm.dtype,
        "device": spec.device,
        "reference": spec.snapkv.reference,
        "spec_sha256": spec.sha256(),
        **{name: _known(environment, name) for name in VERSION_FIELDS},
        "baseline": judgement["baseline"],
        "snapkv": judgement["snapkv"],
        "comparison": judgement["comparison"],
        "datasets": judgement["datasets"],
        "prompts": prompts,
        "environment": {} if environment is None else dict(environment["details"]),
    }


def _known(environment: Event | None, name: str) -> Any:
    return None if environment is None else environment[name]
