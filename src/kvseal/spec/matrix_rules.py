# SPDX-License-Identifier: Apache-2.0
"""What the negative matrix demands of its prompts, of the dropping and of the engines.

The matrix compacts a source twice over and once more by a sharper share, and
asks for the results with whole chunks behind them; each of these must exist, or
its rows would test nothing. Each rule yields every problem it finds. Called by
kvseal.spec.rules; `sharper_percent` and the figures also by whoever makes the
artifacts.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec import pins
from kvseal.spec.options import LMCACHE_SNAPKV_MATRIX, NO_IDENTITY
from kvseal.spec.runspec import MatrixSpec

LEAST_CHUNKS = 5
"""Chunks of a source: half of five, rounded up, is three, and half of three is two, so that a
result and what is made of it differ from each other and from their source."""

SUFFIX_CHUNKS = 2
"""Whole chunks that some cases put behind an artifact's tokens."""

VLLM_WITH_VARIANT = ("0.28.0",)
"""What the edit to vLLM was made for. Source: kvseal.codemods.vllm_block_hash_variant."""

_Problems = Iterator[OptionError]
symbol = LMCACHE_SNAPKV_MATRIX.symbol
wrong = LMCACHE_SNAPKV_MATRIX.wrong


def problems(spec: MatrixSpec) -> _Problems:
    """Yield what is wrong with backends, engines, lengths and dropping."""
    for rule in (_backends, _engines, _lengths, _dropping):
        yield from rule(spec)


def sharper_percent(drop_percent: int) -> int:
    """Return the share that the other ratio drops: half of what is left as well, 75 for 50."""
    return (100 + drop_percent) // 2


def retained_tokens(source_tokens: int, drop_percent: int, chunk_tokens: int) -> int:
    """Return how many tokens SnapKV keeps: at least the share asked for, in whole chunks."""
    return -(-_asked(source_tokens, drop_percent) // chunk_tokens) * chunk_tokens


def _asked(source_tokens: int, drop_percent: int) -> int:
    return source_tokens - source_tokens * drop_percent // 100


def _backends(spec: MatrixSpec) -> _Problems:
    if not spec.matrix.backends:
        yield wrong(
            "BACKEND_PROCESS",
            "no backend is on, so no case would be run",
            False,
            "at least one backend",
            f"switch one on, such as this one or {symbol('BACKEND_MP')}",
        )


def _engines(spec: MatrixSpec) -> _Problems:
    version = spec.vllm.version
    if spec.matrix.identity == NO_IDENTITY or pins.find(spec.device, version) is None:
        return  # stock engines, or said by the engines' rules
    if version not in VLLM_WITH_VARIANT:
        yield wrong(
            "VLLM_VERSION",
            "transform identity has not been made for this vLLM",
            version,
            " or ".join(VLLM_WITH_VARIANT),
            f"set it to that, or {symbol('STOCK')}=y, which edits no vLLM",
        )


def _lengths(spec: MatrixSpec) -> _Problems:
    prompt, chunk = spec.matrix.prompt_tokens, spec.lmcache.chunk_size_tokens
    if chunk < 1:
        return  # said by the bounds
    if (prompt - 1) % chunk or (prompt - 1) // chunk < LEAST_CHUNKS:
        fitting = max(LEAST_CHUNKS, (prompt - 1) // chunk) * chunk + 1
        yield wrong(
            "PROMPT_TOKENS",
            "a prompt of the matrix is whole chunks and the one token that vLLM computes itself",
            prompt,
            f"a multiple of {symbol('CHUNK_SIZE')} = {chunk} and one, {LEAST_CHUNKS} chunks at "
            "least",
            f"set it to {fitting}",
        )
    total = prompt + SUFFIX_CHUNKS * chunk + spec.matrix.new_tokens
    if total > spec.vllm.max_model_len_tokens:
        yield wrong(
            "MAX_MODEL_LEN",
            f"prompt, {SUFFIX_CHUNKS} more chunks and answer ({prompt} + {SUFFIX_CHUNKS * chunk} "
            f"+ {spec.matrix.new_tokens} tokens) do not fit",
            spec.vllm.max_model_len_tokens,
            f"at least {total}",
            f"raise it, or lower {symbol('PROMPT_TOKENS')}, {symbol('CHUNK_SIZE')} or "
            f"{symbol('MAX_TOKENS')}",
        )


def _dropping(spec: MatrixSpec) -> _Problems:
    matrix, chunk = spec.matrix, spec.lmcache.chunk_size_tokens
    if matrix.kernel_tokens % 2 == 0:
        yield wrong(
            "KERNEL_SIZE",
            "pooling over an even number of positions has no middle",
            matrix.kernel_tokens,
            "an odd number",
            f"set it to {matrix.kernel_tokens + 1}",
        )
    percent = matrix.drop_percent
    if chunk < 1 or matrix.prompt_tokens <= chunk or not 0 < percent < 100:
        return  # said by the lengths and the bounds
    source = (matrix.prompt_tokens - 1) // chunk * chunk
    stages = _stages(source, percent, chunk)
    for words, tokens, share in stages:
        if retained_tokens(tokens, share, chunk) >= tokens:
            yield wrong(
                "DROP_PERCENT",
                f"nothing would be dropped of {words}: {tokens} tokens less {share} %, rounded up "
                f"to chunks of {chunk}, are as many",
                percent,
                f"a share that leaves at least a chunk less of {source} tokens, and again of those",
                _remedy(spec, source),
            )
            return
    left = min(_asked(tokens, share) for _, tokens, share in stages)
    if matrix.window_tokens >= left:
        yield wrong(
            "WINDOW_SIZE",
            "the query window, which is always kept, leaves nothing to choose",
            matrix.window_tokens,
            f"less than {left}, the fewest tokens that {symbol('DROP_PERCENT')} = {percent} leaves "
            "of the source, of what was kept of it, or by the other ratio",
            f"set it or {symbol('DROP_PERCENT')} lower, or {symbol('PROMPT_TOKENS')} higher",
        )
    if sharper_percent(percent) == percent:
        yield wrong(
            "DROP_PERCENT",
            "there is no other ratio that drops more, as some rows need",
            percent,
            "98 at most",
            "set it to that or less",
        )


def _stages(source: int, percent: int, chunk: int) -> tuple[tuple[str, int, int], ...]:
    """Return what is compacted: in words, how many tokens, and the share that is dropped."""
    once = retained_tokens(source, percent, chunk)
    return (
        ("the source", source, percent),
        ("what was kept of it", once, percent),
        ("the source, by the other ratio", source, sharper_percent(percent)),
    )


def _remedy(spec: MatrixSpec, source: int) -> str:
    """Return the nearest share that would do; without one the source is too short for any."""
    chunk, window = spec.lmcache.chunk_size_tokens, spec.matrix.window_tokens
    fitting = [
        percent
        for percent in range(1, 99)
        if all(
            retained_tokens(tokens, share, chunk) < tokens and window < _asked(tokens, share)
            for _, tokens, share in _stages(source, percent, chunk)
        )
    ]
    if not fitting:
        return f"raise {symbol('PROMPT_TOKENS')}, or lower {symbol('WINDOW_SIZE')}"
    nearest = min(fitting, key=lambda percent: abs(percent - spec.matrix.drop_percent))
    return f"set it to {nearest}, or raise {symbol('PROMPT_TOKENS')}"
