# SPDX-License-Identifier: Apache-2.0
"""What the answers must be, from two parties that have no cache.

The control is an engine without any: what it answers to a literal prompt is
what a miss must answer. The witness is the same model in transformers, decoding
from an artifact's own tensors: what it answers is what a hit must answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.witness import decode_reference
from kvseal.drivers.matrix.artifacts import Made, Topic
from kvseal.drivers.matrix.prompts import Prompts
from kvseal.engines.completions import CompletionClient
from kvseal.process import Progress
from kvseal.records import matrix_builders as builders
from kvseal.records.history import HistoryWriter
from kvseal.workload.matrix import Ask, Case


@dataclass(frozen=True)
class Truth:
    """Both parties. `witness` is the model in transformers, float32."""

    control: CompletionClient
    witness: Any
    rope: RopeParameters
    history: HistoryWriter
    new_tokens: int

    def of_prompt(self, prompt: Sequence[int]) -> list[int]:
        """Record and return what the control answers."""
        completion = self.control.complete(
            list(prompt), max_tokens=self.new_tokens, ignore_eos=True
        )
        self.history.append(
            builders.control(
                prompt=prompt, output_token_ids=completion.token_ids, text=completion.text
            )
        )
        return completion.token_ids

    def of_artifact(self, made: Made, rest: Sequence[int]) -> list[int]:
        """Record and return what the witness answers when `rest` follows the artifact."""
        decoded = decode_reference(
            self.witness,
            made.keys,
            made.values,
            rest,
            self.new_tokens,
            ignore_eos=True,
            rope=self.rope,
        )
        self.history.append(
            builders.witness(
                artifact=made.name,
                prompt=[*made.token_ids, *rest],
                output_token_ids=list(decoded.token_ids),
                top2_margin=min(decoded.top2_margins),
            )
        )
        return list(decoded.token_ids)


def record_truth(truth: Truth, prompts: Prompts, cases: Iterable[Case]) -> None:
    """Ask both about every prompt of the cases, once each."""
    asks = {
        (step.prompt, step.suffix_chunks): step
        for case in cases
        for step in case.steps
        if isinstance(step, Ask)
    }
    with Progress("asking without any cache") as progress:
        for number, prompt in enumerate(dict.fromkeys(tuple(prompts.of(a)) for a in asks.values())):
            progress.update(f"prompt {number + 1}")
            truth.of_prompt(prompt)
    with Progress("decoding in transformers"):
        for step in asks.values():
            made = prompts.made[step.prompt]
            if made.seal is not None:
                truth.of_artifact(made, prompts.rest(step.suffix_chunks))


def telling(truth: Truth, topics: Iterable[Topic], wanted: int) -> Iterator[Topic]:
    """Yield up to `wanted` topics whose two answers differ, and record the truth of these.

    One whose transformed KV answers as ordinary KV does can't show whose was served.
    """
    for topic in topics:
        if wanted == 0:
            return
        if truth.of_prompt(topic.literal) != truth.of_artifact(topic.made, topic.tail):
            truth.of_prompt([*topic.source, *topic.tail])
            wanted -= 1
            yield topic
