# SPDX-License-Identifier: Apache-2.0
"""Show whose KV an ordinary prompt gets when it is equal to a transformed entry's kept tokens.

One prompt is prefilled, compacted and stored as LMCache's SDK stores it: under
the kept token IDs and nothing else. Then an ordinary request sends just those
IDs. It knows nothing of the source prompt, so its true answer is the one it
gets from an empty cache, which is asked for next.
"""

from __future__ import annotations

from kvseal.drivers.environment import record_environment
from kvseal.drivers.recording import Recording
from kvseal.drivers.run import ModelTokenizer
from kvseal.drivers.serving import Measured, serving
from kvseal.host.facts import HostFacts
from kvseal.models.resolve import resolve_model
from kvseal.process import Progress
from kvseal.records import builders
from kvseal.spec.runspec import RunSpec
from kvseal.workload.build import build_prompts

SOURCE_SALT = "kvseal-source"
"""Keeps the source's ordinary KV apart: the only entry without a salt is the compacted one."""


def run_unsafe_hit(spec: RunSpec, recording: Recording, host: HostFacts) -> None:
    """Run the demonstration on the first prompt of `spec`.

    Raises:
        KvsealError: whatever made going on impossible; the engines are gone then.
    """
    history = recording.history
    with Progress("preparing model and prompt"):
        model = resolve_model(spec)
        history.append(record_environment(spec, recording.folder, host, model))
        tokenizer = ModelTokenizer(model.path)
        prompt = build_prompts(spec, tokenizer)[0]
    with serving(spec, model, logs=recording.logs, run_id=recording.run_id) as engines:
        history.append(builders.engines_started(**engines.describe()))
        engines.cache.clear()
        engines.prefill(prompt.token_ids, cache_salt=SOURCE_SALT)
        compacted = engines.compact(prompt.token_ids, source_salt=SOURCE_SALT, store_salt="")
        literal = compacted.token_ids
        history.append(
            builders.literal_prompt(
                token_ids=literal,
                source_tokens=len(prompt.token_ids),
                compacted_tokens=compacted.stored_tokens,
                text=tokenizer.decode(literal),
            )
        )
        history.append(_answer("compacted", engines.ask(literal)))
        engines.cache.clear()
        history.append(_answer("empty", engines.ask(literal)))


def _answer(cache: str, measured: Measured) -> dict[str, object]:
    completion = measured.completion
    return builders.literal_answer(
        cache=cache,
        output_token_ids=completion.token_ids,
        text=completion.text,
        hit_tokens_vllm=completion.hit_tokens,
        hit_tokens_server=measured.hit_tokens_server,
    )
