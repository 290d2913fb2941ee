# SPDX-License-Identifier: Apache-2.0
"""The prompts of a run, whichever source its spec names. Called by the drivers."""

from __future__ import annotations

from pathlib import Path

from kvseal.errors import OptionError
from kvseal.spec.runspec import RunSpec
from kvseal.workload.file import prompts_from_file
from kvseal.workload.hub import prompts_from_hub
from kvseal.workload.prompt import Prompt, Tokenizer
from kvseal.workload.registry import generate_prompts


def build_prompts(spec: RunSpec, tokenizer: Tokenizer) -> list[Prompt]:
    """Return the prompts of `spec` in order, each of a length that the run can use.

    Raises:
        OptionError: the source is unusable, two prompts are the same, or one is too
            short for a chunk and the query window or too long for the model.
        PrerequisiteError: the source needs something that is not there.
    """
    work = spec.workload
    if work.dataset_file:
        prompts = prompts_from_file(
            Path(work.dataset_file), prompts=work.prompts, tokenizer=tokenizer
        )
    elif work.dataset_hub:
        prompts = prompts_from_hub(
            work.dataset_hub, work.dataset_revision, prompts=work.prompts, tokenizer=tokenizer
        )
    else:
        prompts = generate_prompts(
            work.datasets,
            prompts=work.prompts,
            tokens=work.prompt_tokens,
            seed=work.seed,
            tokenizer=tokenizer,
        )
    _check(spec, prompts)
    return prompts


def _check(spec: RunSpec, prompts: list[Prompt]) -> None:
    chunk, window = spec.lmcache.chunk_size_tokens, spec.snapkv.window_tokens
    longest = spec.vllm.max_model_len_tokens - spec.workload.new_tokens
    seen: dict[tuple[int, ...], int] = {}
    for prompt in prompts:
        tokens = len(prompt.token_ids)
        # Whole chunks are compacted, and something besides the window must be among them.
        if (tokens - 1) // chunk * chunk <= window:
            raise OptionError(
                f"prompt {prompt.index} is too short to be compacted",
                option="prompt of " + prompt.dataset,
                value=f"{tokens} tokens",
                expected=f"more whole chunks of {chunk} tokens than the query window of {window}",
                remedy="use longer prompts, a smaller chunk or a smaller window",
            )
        if tokens > longest:
            raise OptionError(
                f"prompt {prompt.index} is too long for the model",
                option="prompt of " + prompt.dataset,
                value=f"{tokens} tokens",
                expected=f"at most {longest}, to leave room for {spec.workload.new_tokens} new",
                remedy="use shorter prompts or raise the maximum model length",
            )
        other = seen.setdefault(prompt.token_ids, prompt.index)
        if other != prompt.index:
            raise OptionError(
                f"prompts {other} and {prompt.index} are the same",
                option="prompt of " + prompt.dataset,
                expected="different prompts, or one would be answered from the other's cache",
            )
