# SPDX-License-Identifier: Apache-2.0
"""Make a text of exactly so many tokens around given facts and a question.

The facts stand at drawn depths among filler sentences. Whole sentences come
first, then one line of short words takes up what is left, so the text itself
has the wanted length: its token IDs are what a tokenizer makes of it, and no
prompt is cut in the middle of a word. Called by the tasks of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from kvseal.errors import OptionError
from kvseal.workload.draws import Draws
from kvseal.workload.filler import filler_sentence
from kvseal.workload.prompt import Tokenizer

PADDING_START = "Also seen:"
PADDING_WORDS = ("rain", "snow", "sand", "wood", "glass", "stone", "salt", "a", "to", "ice", "so")
ROTATING_WORDS = 7
"""How many of them, from the first, a line of padding goes through; the others end it."""
MAX_RETRIES = 4


@dataclass(frozen=True)
class Fact:
    """A sentence of the prompt that matters, and how deep it stands: 0 first, 1 last."""

    depth: float
    sentence: str


@dataclass(frozen=True)
class Composition:
    """A prompt before it has a length.

    `header` opens the text and must differ between prompts, so that no two
    share their first chunk of tokens. `question` ends it without a trailing
    space, so that the model's next token is the answer's first.
    """

    header: str
    facts: tuple[Fact, ...]
    question: str
    expected: tuple[str, ...]


def header(dataset: str, index: int, draws: Draws) -> str:
    """Return an opening that no other prompt of the run has; unique by dataset and index."""
    letters = "".join(draws.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(4))
    return f"Page {index} of {dataset.replace('_', ' ')} ({letters})."


def fit(
    composition: Composition, tokens: int, tokenizer: Tokenizer, draws: Draws
) -> tuple[str, tuple[int, ...]]:
    """Return the text of exactly `tokens` tokens, and its token IDs.

    Raises:
        OptionError: when the facts and question alone are longer, or no padding
            brings this tokenizer to exactly that length.
    """
    sentences: list[str] = []

    def text(count: int, padding: str = "") -> str:
        while len(sentences) < count:
            sentences.append(filler_sentence(draws))
        return _render(composition, sentences[:count], padding)

    def length(count: int, padding: str = "") -> int:
        return len(tokenizer.encode(text(count, padding)))

    count = _most_sentences(length, tokens)
    for fewer in range(1, MAX_RETRIES + 1):
        if count < fewer:
            break
        padding = _padding(lambda words, n=count - fewer: length(n, words), tokens)  # type: ignore[misc]
        if padding is not None:
            result = text(count - fewer, padding)
            return result, tuple(tokenizer.encode(result))
    if length(count) == tokens:
        return text(count), tuple(tokenizer.encode(text(count)))
    raise OptionError(
        f"no text of this task comes to exactly {tokens} tokens with this tokenizer",
        option="WORKFLOW_KNLP_LMCACHE_SNAPKV_PROMPT_TOKENS",
        value=tokens,
        expected=f"some {length(0) + 40} or more",
        remedy="ask for another prompt length",
    )


def _render(composition: Composition, filler: list[str], padding: str) -> str:
    """Join the parts; each fact goes before the filler sentence at its depth."""
    parts: list[list[str]] = [[] for _ in range(len(filler) + 1)]
    for fact in composition.facts:
        parts[round(fact.depth * len(filler))].append(fact.sentence)
    lines = [composition.header]
    for position, facts in enumerate(parts):
        lines += facts
        lines += filler[position : position + 1]
    lines += [padding] if padding else []
    return " ".join([*lines, composition.question])


def _most_sentences(length: Callable[[int], int], tokens: int) -> int:
    """Return the largest number of filler sentences that stays within `tokens`."""
    empty = length(0)
    if empty > tokens:
        raise OptionError(
            "the prompt is too short to hold this task's facts and question",
            option="WORKFLOW_KNLP_LMCACHE_SNAPKV_PROMPT_TOKENS",
            value=tokens,
            expected=f"at least {empty + 40}",
            remedy="ask for longer prompts or for fewer needles, pairs or hops",
        )
    low, high = 0, 8
    while length(high) <= tokens:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if length(middle) <= tokens else (low, middle)
    return low


def _padding(length: Callable[[str], int], tokens: int) -> str | None:
    """Return a line of words that brings the text to `tokens`, or None if there is none."""

    def line(count: int, tail: tuple[str, ...] = ()) -> str:
        body = [PADDING_WORDS[position % ROTATING_WORDS] for position in range(count)]
        return f"{PADDING_START} {' '.join([*body, *tail])}."

    missing = tokens - length(line(1))
    if missing < 0:
        return None
    # One common word is one token to most tokenizers, so this is nearly always it.
    if length(line(1 + missing)) == tokens:
        return line(1 + missing)
    low, high = 1, 2 + missing
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if length(line(middle)) <= tokens else (low, middle)
    base = max(1, low - 2)
    for size in range(4):
        for tail in product(PADDING_WORDS, repeat=size):
            if length(line(base, tail)) == tokens:
                return line(base, tail)
    return None
