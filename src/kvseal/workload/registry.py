# SPDX-License-Identifier: Apache-2.0
"""Generated tasks by name, and the prompts of a run made from them.

A dataset is named as in the run spec: `needle`, or with parameters
`key_value:pairs=4,digits=6`. Prompts are raw completions, not chats. The same
seed, dataset text, index, length and tokenizer give the same prompt bit for
bit on every Python version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Protocol

from kvseal.errors import OptionError
from kvseal.workload.draws import Draws
from kvseal.workload.fitting import Composition, fit
from kvseal.workload.key_value import KeyValue
from kvseal.workload.multi_needle import MultiNeedle
from kvseal.workload.needle import Needle
from kvseal.workload.prompt import Prompt, Tokenizer
from kvseal.workload.variable_tracking import VariableTracking

GENERATION = "kvseal.workload.v1"
"""Part of every seed: raised when a task's text changes, so old runs stay told apart."""


class Task(Protocol):
    """A task makes the parts of one prompt; `kind` names its answer rule."""

    name: str
    kind: str

    def compose(self, index: int, draws: Draws) -> Composition:
        """Return the parts of prompt `index`."""
        ...


TASKS: dict[str, type[Needle] | type[MultiNeedle] | type[KeyValue] | type[VariableTracking]] = {
    task.name: task for task in (Needle, MultiNeedle, KeyValue, VariableTracking)
}

LIMITS = {"digits": (3, 12), "needles": (1, 8), "pairs": (1, 16), "hops": (1, 8)}
"""Smallest and largest value of each task parameter."""


def parse_task(dataset: str) -> Task:
    """Return the task that `dataset` names, with its parameters.

    Raises:
        OptionError: for an unknown task or parameter, or a value out of range.
    """
    option = "WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET"
    name, _, text = dataset.partition(":")
    if name not in TASKS:
        raise OptionError(
            "unknown dataset", option=option, value=dataset, expected=" or ".join(sorted(TASKS))
        )
    known = [field.name for field in fields(TASKS[name])]
    values: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in known or key in values:
            raise OptionError(
                f"task {name} has no such parameter, or it is given twice",
                option=option,
                value=part,
                expected=" or ".join(f"{parameter}=N" for parameter in known),
            )
        low, high = LIMITS[key]
        if not (value.isascii() and value.isdigit() and low <= int(value) <= high):
            raise OptionError(
                f"parameter {key} of task {name} is out of range",
                option=option,
                value=part,
                expected=f"{key}={low} … {key}={high}",
            )
        values[key] = int(value)
    return TASKS[name](**values)


def generate_prompt(
    dataset: str, *, index: int, tokens: int, seed: int, tokenizer: Tokenizer
) -> Prompt:
    """Return prompt `index` of `dataset`, exactly `tokens` tokens long.

    Raises:
        OptionError: for an unknown dataset, or a length the task can't have.
    """
    task = parse_task(dataset)
    draws = Draws(GENERATION, seed, dataset, index)
    composition = task.compose(index, draws)
    text, token_ids = fit(composition, tokens, tokenizer, draws)
    return Prompt(index, dataset, text, token_ids, composition.expected, task.kind)


def generate_prompts(
    datasets: Sequence[str], *, prompts: int, tokens: int, seed: int, tokenizer: Tokenizer
) -> list[Prompt]:
    """Return `prompts` prompts in all, the datasets taking turns: index i is of i mod len.

    Raises:
        OptionError: when no dataset is named, or as `generate_prompt`.
    """
    if not datasets:
        raise OptionError(
            "no dataset is named",
            option="WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET",
            value=list(datasets),
            expected=", ".join(sorted(TASKS)),
        )
    return [
        generate_prompt(
            datasets[index % len(datasets)],
            index=index,
            tokens=tokens,
            seed=seed,
            tokenizer=tokenizer,
        )
        for index in range(prompts)
    ]
