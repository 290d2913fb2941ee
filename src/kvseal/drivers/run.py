# SPDX-License-Identifier: Apache-2.0
"""The comparison from run spec to last history line: model, prompts, engines, both arms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.drivers.compare import compare
from kvseal.drivers.environment import record_environment
from kvseal.drivers.recording import Recording
from kvseal.drivers.serving import serving
from kvseal.host.facts import HostFacts
from kvseal.models.resolve import resolve_model
from kvseal.process import Progress
from kvseal.records import builders
from kvseal.spec.runspec import RunSpec
from kvseal.workload.build import build_prompts


class ModelTokenizer:
    """A Hugging Face tokenizer as kvseal.workload asks for one."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path)

    def encode(self, text: str) -> list[int]:
        """Return token IDs, special tokens of the model included."""
        ids: list[int] = self._tokenizer.encode(text)
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of token IDs."""
        return str(self._tokenizer.decode(token_ids))


def load_witness(path: Path) -> Any:
    """Load the model in transformers, float32, for kvseal.compaction.witness."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def run_comparison(spec: RunSpec, recording: Recording, host: HostFacts) -> None:
    """Run the comparison of `spec`, writing all that happens to `recording`.

    Raises:
        KvsealError: whatever made going on impossible; the engines are gone then.
    """
    with Progress("preparing model and prompts"):
        model = resolve_model(spec)
        recording.history.append(record_environment(spec, recording.folder, host, model))
        prompts = build_prompts(spec, ModelTokenizer(model.path))
        witness = load_witness(model.path) if spec.snapkv.reference else None
    with serving(spec, model, logs=recording.logs, run_id=recording.run_id) as engines:
        recording.history.append(builders.engines_started(**engines.describe()))
        compare(engines, prompts, recording.history, salt=recording.run_id, witness=witness)
