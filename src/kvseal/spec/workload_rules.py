# SPDX-License-Identifier: Apache-2.0
"""What prompts and compaction demand of each other and of the engines.

Each rule yields every problem it finds. Called by kvseal.spec.rules alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec.model_rules import COMMIT
from kvseal.spec.options import LMCACHE_SNAPKV, TASKS
from kvseal.spec.runspec import RunSpec

_Problems = Iterator[OptionError]
symbol = LMCACHE_SNAPKV.symbol
wrong = LMCACHE_SNAPKV.wrong


def problems(spec: RunSpec) -> _Problems:
    """Yield what is wrong with data sets, lengths and compaction."""
    for rule in (_datasets, _lengths, _compaction):
        yield from rule(spec)


def cached_prefix_tokens(prompt_tokens: int, chunk_tokens: int) -> int:
    """Return how many of a prompt's tokens LMCache can serve: whole chunks, less the last token.

    vLLM always computes at least one token itself, so a prompt that ends on a
    chunk's edge loses that chunk.
    """
    return (prompt_tokens - 1) // chunk_tokens * chunk_tokens


def _datasets(spec: RunSpec) -> _Problems:
    work = spec.workload
    unknown = [name for name in work.datasets if name.partition(":")[0] not in TASKS]
    if unknown:
        yield OptionError(
            "no such task", option="workload.datasets", value=unknown, expected=" ".join(TASKS)
        )
    if work.dataset_file and work.dataset_hub:
        yield wrong(
            "DATASET_FILE",
            "two data sets are named",
            work.dataset_file,
            f"one of {symbol('DATASET_FILE')} and {symbol('DATASET_HUB')}",
            "empty one of them",
        )
    if work.dataset_hub and not COMMIT.fullmatch(work.dataset_revision):
        yield wrong(
            "DATASET_REVISION",
            "the data set can change under a recorded result",
            work.dataset_revision,
            "the commit of the data set's repository, 40 hexadecimal digits",
            f"look up the commit of {work.dataset_hub} on its hub page and set it",
        )
    if not (work.datasets or work.dataset_file or work.dataset_hub):
        yield wrong(
            "NEEDLE",
            "nothing to ask the model",
            False,
            "at least one task or data set",
            "switch a task on, such as this one",
        )


def _lengths(spec: RunSpec) -> _Problems:
    prompt, chunk = spec.workload.prompt_tokens, spec.lmcache.chunk_size_tokens
    if prompt <= chunk:
        yield wrong(
            "PROMPT_TOKENS",
            "the prompt is shorter than a chunk, so LMCache would store nothing of it",
            prompt,
            f"more than {symbol('CHUNK_SIZE')} = {chunk}",
            "ask for longer prompts or smaller chunks",
        )
    total = prompt + spec.workload.new_tokens
    if total > spec.vllm.max_model_len_tokens:
        yield wrong(
            "MAX_MODEL_LEN",
            f"prompt and answer ({prompt} + {spec.workload.new_tokens} tokens) do not fit",
            spec.vllm.max_model_len_tokens,
            f"at least {total}",
            f"raise it, or lower {symbol('PROMPT_TOKENS')} or {symbol('MAX_TOKENS')}",
        )


def _compaction(spec: RunSpec) -> _Problems:
    snapkv, chunk = spec.snapkv, spec.lmcache.chunk_size_tokens
    if snapkv.kernel_tokens % 2 == 0:
        yield wrong(
            "KERNEL_SIZE",
            "pooling over an even number of positions has no middle",
            snapkv.kernel_tokens,
            "an odd number",
            f"set it to {snapkv.kernel_tokens + 1}",
        )
    prefix = cached_prefix_tokens(spec.workload.prompt_tokens, chunk)
    if prefix <= 0 or not 0 < snapkv.drop_percent < 100:
        return  # said by _lengths and the bounds
    kept = prefix - prefix * snapkv.drop_percent // 100
    if snapkv.window_tokens >= prefix:
        yield wrong(
            "WINDOW_SIZE",
            "the query window is longer than the cached prompt",
            snapkv.window_tokens,
            f"less than {prefix}, the whole chunks of {spec.workload.prompt_tokens} tokens",
            f"set it lower, or {symbol('PROMPT_TOKENS')} higher",
        )
    elif snapkv.window_tokens >= kept:
        yield wrong(
            "WINDOW_SIZE",
            "the query window, which is always kept, leaves nothing to choose",
            snapkv.window_tokens,
            f"less than {kept}, what {symbol('DROP_PERCENT')} = {snapkv.drop_percent} "
            f"keeps of {prefix} tokens",
            f"set it or {symbol('DROP_PERCENT')} lower",
        )
    elif -(-kept // chunk) * chunk >= prefix:
        yield wrong(
            "DROP_PERCENT",
            "rounded to whole chunks, nothing would be dropped",
            snapkv.drop_percent,
            f"at least {chunk * 100 // prefix + 1} for {prefix} tokens in chunks of {chunk}",
            f"raise it, or {symbol('PROMPT_TOKENS')}, or lower {symbol('CHUNK_SIZE')}",
        )
